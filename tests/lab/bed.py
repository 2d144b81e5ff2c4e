"""Beds of many hosts on one machine: booted ones, or plain sshds behind their own addresses."""

import contextlib
import pathlib
import shutil
import time
from collections.abc import Sequence
from typing import Self

from .machine import Machine
from .network import Network
from .sshd import Sshd, make_key

WATCHERS_PER_HOST = 64
"""inotify instances: systemd does not boot without; the kernel gives root 128 for all hosts."""
_INOTIFY = pathlib.Path("/proc/sys/fs/inotify/max_user_instances")


class Bed:
    """N booted hosts at one switch, with the client's `.ssh` folder for them; a context."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        size: int,
        name: str = "lab",
        prefix: str = "10.77",
        disk: str = "500m",
        shared: Sequence[str] = (),
    ) -> None:
        """`shared` are folders of this machine that all hosts see, read-only."""
        self.folder = folder
        self.network = Network(name, size=size, prefix=prefix)
        self.machines = tuple(
            Machine(folder / plug.namespace, plug, self.network, disk=disk, shared=shared)
            for plug in self.network.plugs
        )
        self.ssh = folder / ".ssh"
        self.boot_s = 0.0
        self._inotify = ""

    def __enter__(self) -> Self:
        self.ssh.mkdir(parents=True)
        key = make_key(self.ssh / "id_ed25519")
        names = {machine.name: machine.address for machine in self.machines}
        self.network.__enter__()  # first: with it, hosts of these names are ours
        begun_s = time.monotonic()
        self._inotify = _INOTIFY.read_text()
        try:
            _INOTIFY.write_text(str(max(int(self._inotify), WATCHERS_PER_HOST * len(names))))
            for machine in self.machines:
                machine.create(key=key, names=names)
            for machine in self.machines:
                machine.power_on()
            for machine in self.machines:
                machine.wait(limit_s=120)
        except BaseException:
            self.close()
            raise
        self.boot_s = time.monotonic() - begun_s
        write_client(self.ssh, {m.name: (m.address, m.known_hosts_line) for m in self.machines})
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Takes all hosts away, also after a start that failed halfway."""
        for machine in self.machines:
            machine.destroy()
        self.network.close()
        if self._inotify:
            _INOTIFY.write_text(self._inotify)
        shutil.rmtree(self.folder, ignore_errors=True)


class PlainBed:
    """N plain sshds of this machine, each in a network namespace of its own; a context."""

    def __init__(
        self, folder: pathlib.Path, *, size: int, name: str = "ldp", prefix: str = "10.79"
    ) -> None:
        self.ssh = folder / ".ssh"
        self.network = Network(name, size=size, prefix=prefix)
        self._folder = folder
        self.servers: Sequence[Sshd] = ()

    def __enter__(self) -> Self:
        self.ssh.mkdir(parents=True)
        key = make_key(self.ssh / "id_ed25519")
        self.network.__enter__()
        self.servers = [
            Sshd(
                folder=self._folder / plug.namespace,
                key=key,
                address=plug.address,
                port=22,
                namespace=plug.namespace,
            )
            for plug in self.network.plugs
        ]
        try:
            for server in self.servers:
                server.prepare()
                server.start(wait_s=0)
            for server in self.servers:
                server.wait(60)
        except BaseException:
            self.close()
            raise
        lines = {
            f"node{number}": (server.address, server.known_hosts_line)
            for number, server in enumerate(self.servers, start=1)
        }
        write_client(self.ssh, lines)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for server in self.servers:
            with contextlib.suppress(AssertionError):
                server.stop()
        self.network.close()


def write_client(folder: pathlib.Path, hosts: dict[str, tuple[str, str]]) -> None:
    """The client's config and known_hosts; `hosts` are alias to address and known_hosts line."""
    (folder / "known_hosts").write_text("".join(line for _, line in hosts.values()))
    entries = [f"Host {name}\n  HostName {address}\n" for name, (address, _) in hosts.items()]
    (folder / "config").write_text(
        "".join(entries) + f"Host *\n  User root\n  IdentityFile {folder}/id_ed25519\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n"
    )
