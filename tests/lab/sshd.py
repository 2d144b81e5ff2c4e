"""A plain sshd of this machine with its own configuration and host key, on any address."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from typing import Self

import psutil

from .needs import SSHD

_BASE = """\
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 500
PrintMotd no
"""


def run(*argv: str, stdin: str | None = None) -> str:
    """What a command prints; AssertionError with its words where it fails."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"
    return done.stdout


def make_key(path: pathlib.Path, *, passphrase: str = "") -> pathlib.Path:
    """A new private key; its public half lies beside it."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "lab", "-f", str(path))
    return path


def free_port() -> int:
    """A TCP port nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Sshd:
    """One server; a context that ends it with all its sessions, frozen ones too.

    `extra` stands before the base configuration: sshd takes the first value of a setting.
    """

    folder: pathlib.Path
    key: pathlib.Path
    """The private key it lets in."""
    address: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    extra: str = ""
    namespace: str | None = None
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Its folder: host key and who may come in."""
        self.folder.mkdir(parents=True, exist_ok=True)
        os.makedirs("/run/sshd", exist_ok=True)
        if not (self.folder / "host_key").exists():
            make_key(self.folder / "host_key")
        public = self.key.with_name(f"{self.key.name}.pub").read_text()
        (self.folder / "authorized_keys").write_text(public)

    def start(self, *, wait_s: float = 10.0) -> None:
        """Listens with the configuration as it is now; no wait where `wait_s` is 0."""
        base = _BASE.format(address=self.address, port=self.port, folder=self.folder)
        (self.folder / "sshd_config").write_text(self.extra + base)
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*inside, SSHD, "-D", "-e", "-f", f"{self.folder}/sshd_config"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if wait_s:
            self.wait(wait_s)

    def wait(self, limit_s: float) -> None:
        """Returns once it accepts connections; AssertionError with its log otherwise."""
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                socket.create_connection((self.address, self.port), 1).close()
                return
            time.sleep(0.02)
        raise AssertionError(f"sshd does not listen: {(self.folder / 'log').read_text()}")

    def stop(self) -> None:
        """Ends it and its sessions."""
        processes = self.processes()
        self._signal(signal.SIGKILL)
        psutil.wait_procs(processes, timeout=5)
        if self._process:
            self._process.wait(5)
            self._process = None

    def freeze(self) -> None:
        """Stops every process of it: the kernel still accepts and acknowledges, nobody speaks."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def processes(self) -> list[psutil.Process]:
        """The listener, its connections and their commands."""
        if self._process is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def connections(self) -> int:
        """How many connections it has open."""
        root = self.processes()[:1]
        return len(root[0].children()) if root else 0

    def new_host_key(self) -> None:
        """As after a new installation: same address, another key."""
        for name in ("host_key", "host_key.pub"):
            (self.folder / name).unlink()
        make_key(self.folder / "host_key")
        self.stop()
        self.start()

    @property
    def known_hosts_line(self) -> str:
        """Its line for a known_hosts file."""
        kind, key, *_ = (self.folder / "host_key.pub").read_text().split()
        name = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        return f"{name} {kind} {key}\n"

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
