"""A host by SSH, against a real sshd: what ends, what is killed, what lands on the disk."""

import _thread
import pathlib
import stat
import threading
import time
from collections.abc import Iterator

import pytest

from llmdeploy.edge.ssh import SshShell
from llmdeploy.errors import InputError, Unreachable

from ..lab.needs import need_sshd
from ..lab.sshd import Sshd
from .ssh_bed import Client

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def client(tmp_path: pathlib.Path) -> Iterator[Client]:
    need_sshd()
    made = Client(tmp_path)
    yield made
    made.close()


@pytest.fixture
def server(client: Client, tmp_path: pathlib.Path) -> Iterator[Sshd]:
    with Sshd(folder=tmp_path / "one", key=client.key) as made:
        yield made


@pytest.fixture
def shell(client: Client, server: Sshd) -> SshShell:
    client.knows("gpu1", server)
    return client.shell("gpu1")


def _ended(pid: int, *, limit_s: float = 5.0) -> bool:
    state = pathlib.Path(f"/proc/{pid}/stat")
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        if not state.exists() or state.read_text().split()[2] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_command_gives_its_exit_code_and_both_outputs(shell: SshShell) -> None:
    done = shell.run(["sh", "-c", "cat; echo oops >&2; exit 3"], timeout_s=10, stdin="in")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "in", "oops\n")


def test_words_with_quotes_and_dollars_arrive_as_they_are(shell: SshShell) -> None:
    words = ["it's", 'a "b"', "$HOME", "*", "line\nbreak", "", "é"]
    done = shell.run(["printf", "%s|", *words], timeout_s=10)
    assert done.stdout == "|".join([*words, ""])


def test_a_script_on_stdin_runs(shell: SshShell) -> None:
    script = 'echo "$1"; n=0; while [ $n -lt 3 ]; do n=$((n + 1)); echo $n; done\n'
    assert (
        shell.run(["sh", "-s", "--", "one"], timeout_s=10, stdin=script).stdout == "one\n1\n2\n3\n"
    )


def test_the_environment_is_set_and_is_in_no_argv(shell: SshShell) -> None:
    script = 'echo "$SECRET"; tr "\\0" " " </proc/$PPID/cmdline; cat'
    done = shell.run(
        ["sh", "-c", script], timeout_s=10, stdin="rest", env={"SECRET": "canary $x 'y'"}
    )
    assert done.stdout.startswith("canary $x 'y'\n")
    assert done.stdout.endswith("rest")
    assert done.stdout.count("canary") == 1


def test_a_killed_command_ends_with_128_and_the_signal(shell: SshShell) -> None:
    assert shell.run(["sh", "-c", "kill -9 $$"], timeout_s=10).exit_code == 137


def test_much_output_and_much_input_pass(shell: SshShell) -> None:
    done = shell.run(["sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; seq 200000 >&2"],
                     timeout_s=60)  # fmt: skip
    assert len(done.stdout) == 20_000_000
    assert done.stderr.endswith("200000\n")
    assert shell.run(["wc", "-c"], timeout_s=60, stdin="y" * 5_000_000).stdout.strip() == "5000000"


def test_input_that_is_not_read_does_no_harm(shell: SshShell) -> None:
    assert shell.run(["true"], timeout_s=20, stdin="y" * 8_000_000).exit_code == 0


def test_a_missing_program_is_named_with_a_fix(shell: SshShell) -> None:
    with pytest.raises(Unreachable, match="gpu1: python9 cannot be started") as caught:
        shell.run(["python9", "-c", "1"], timeout_s=10)
    assert caught.value.fix.startswith("install python9 on gpu1")


def test_a_sudo_that_asks_is_told_apart(shell: SshShell, tmp_path: pathlib.Path) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    sudo.chmod(0o755)
    with pytest.raises(InputError, match=r"gpu1: .* asks for a password") as caught:
        shell.run([str(sudo), "systemctl", "start", "x"], timeout_s=10)
    assert "NOPASSWD: systemctl" in caught.value.fix


def test_a_command_past_its_deadline_is_killed_with_its_children(
    shell: SshShell, tmp_path: pathlib.Path
) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(Unreachable, match=r"gpu1: .* did not end in 1 s and was killed"):
        shell.run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"], timeout_s=1)
    assert _ended(int(pid_file.read_text()))
    assert shell.run(["echo", "still here"], timeout_s=10).stdout == "still here\n"


def test_an_interrupted_command_is_killed(shell: SshShell, tmp_path: pathlib.Path) -> None:
    pid_file = tmp_path / "pid"

    def interrupt() -> None:
        deadline_s = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        time.sleep(0.3)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        shell.run(["sh", "-c", f"echo $$ > {pid_file}; exec sleep 60"], timeout_s=30)
    assert _ended(int(pid_file.read_text()))


def test_files_are_whole_and_have_their_mode(shell: SshShell, tmp_path: pathlib.Path) -> None:
    path, content = str(tmp_path / "a b" / "se'cret"), bytes(range(256)) * 4000
    assert shell.read(path) is None
    shell.write(path, b"one", mode=0o600)
    shell.write(path, content, mode=0o640)
    assert shell.read(path) == content
    assert stat.S_IMODE((tmp_path / "a b" / "se'cret").stat().st_mode) == 0o640
    assert shell.entries(str(tmp_path / "a b")) == ("se'cret",)


def test_a_file_is_created_once(shell: SshShell, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "new" / "lock")
    assert shell.create(path, b"mine", mode=0o600)
    assert not shell.create(path, b"yours")
    assert shell.read(path) == b"mine"
    assert shell.entries(str(tmp_path / "new")) == ("lock",)


def test_a_file_grows_and_is_read_from_a_place(shell: SshShell, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "log")
    assert shell.read_from(path, offset_bytes=0) == b""
    shell.append(path, b"0123")
    shell.append(path, b"4567\n")
    assert shell.read_from(path, offset_bytes=3) == b"34567\n"
    assert shell.read_from(path, offset_bytes=3, limit_bytes=2) == b"34"
    assert shell.read_from(path, offset_bytes=99) == b""


def test_files_and_folders_are_removed(shell: SshShell, tmp_path: pathlib.Path) -> None:
    shell.write(str(tmp_path / "d" / "e" / "f"), b"x")
    shell.remove(str(tmp_path / "d"))
    shell.remove(str(tmp_path / "d"))
    assert not (tmp_path / "d").exists()
    assert shell.entries(str(tmp_path / "d")) == ()


def test_a_home_path_is_the_hosts(shell: SshShell) -> None:
    assert shell.entries("~/") == tuple(sorted(p.name for p in pathlib.Path("/root").iterdir()))


def test_a_file_that_cannot_be_written_names_host_and_path(shell: SshShell) -> None:
    with pytest.raises(InputError, match=r"gpu1: /proc/nope/x: .*No such file") as caught:
        shell.write("/proc/nope/x", b"x")
    assert "disk has room" in caught.value.fix


def test_one_connection_serves_all_commands(shell: SshShell, server: Sshd) -> None:
    threads = [
        threading.Thread(target=shell.run, args=(["sleep", "0.3"],), kwargs={"timeout_s": 20})
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.connections() == 1


def test_what_is_appended_comes_over_a_connection_of_its_own(
    shell: SshShell, server: Sshd, tmp_path: pathlib.Path
) -> None:
    shell.run(["true"], timeout_s=10)
    for _ in range(2):
        shell.append(str(tmp_path / "model.part"), bytes(2**20))
    assert server.connections() == 2
    assert (tmp_path / "model.part").stat().st_size == 2**21


def test_a_dead_connection_is_opened_anew(shell: SshShell, server: Sshd) -> None:
    shell.run(["true"], timeout_s=10)
    server.stop()
    server.start()
    time.sleep(0.2)  # the client's side reads the end of the old connection
    assert shell.run(["echo", "again"], timeout_s=10).stdout == "again\n"


def test_the_pool_closes_what_was_used_longest_ago(client: Client, tmp_path: pathlib.Path) -> None:
    client._most = 2
    servers = [Sshd(folder=tmp_path / f"s{n}", key=client.key) for n in range(3)]
    try:
        for number, server in enumerate(servers):
            server.__enter__()
            client.knows(f"h{number}", server)
        connections = client.connections()
        for number in (0, 1, 2):
            client.shell(f"h{number}", connections=connections).run(["true"], timeout_s=10)
        deadline_s = time.monotonic() + 5
        while servers[0].connections() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert [server.connections() for server in servers] == [0, 1, 1]
    finally:
        for server in servers:
            server.stop()


def test_what_a_login_script_prints_is_left_out(client: Client, tmp_path: pathlib.Path) -> None:
    noisy = 'ForceCommand echo hello; echo oops >&2; eval "$SSH_ORIGINAL_COMMAND"\n'
    with Sshd(folder=tmp_path / "noisy", key=client.key, extra=noisy) as server:
        client.knows("noisy", server)
        done = client.shell("noisy").run(["echo", "data"], timeout_s=10)
        assert (done.stdout, done.stderr) == ("data\n", "")


def test_a_login_without_a_shell_says_so(client: Client, tmp_path: pathlib.Path) -> None:
    none = "ForceCommand echo 'This account is currently not available.'\n"
    with Sshd(folder=tmp_path / "none", key=client.key, extra=none) as server:
        client.knows("none", server)
        with pytest.raises(Unreachable, match=r"none: .*runs no command: .*not avail") as caught:
            client.shell("none").run(["true"], timeout_s=10)
        assert "chsh" in caught.value.fix
