"""What a host's /proc says, in its own format."""


def stat(pid: int, *, ticks: int, state: str = "S") -> bytes:
    """The text of /proc/PID/stat of a process that started `ticks` after boot."""
    before = " ".join(["0"] * 18)
    return f"{pid} (llmdeploy (x)) {state} {before} {ticks} 0 0\n".encode()
