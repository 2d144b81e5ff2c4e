"""A client's folder before real sshds: its key, its ~/.ssh/config and its known_hosts."""

import pathlib

from llmdeploy.edge.ssh import SshShell
from llmdeploy.edge.ssh_config import Config, Target
from llmdeploy.edge.ssh_connect import LIMITS, Limits
from llmdeploy.edge.ssh_pool import Connections

from ..lab.sshd import Sshd, make_key


class Client:
    """Knows the hosts it was told of; `shell(alias)` is one of them."""

    def __init__(self, folder: pathlib.Path, *, limits: Limits = LIMITS, most: int = 32) -> None:
        self.folder = folder
        self.key = make_key(folder / "id")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text("# hosts of a test\n")
        self.config = folder / "config"
        self.config.write_text("")
        self._limits, self._most = limits, most
        self._opened: list[Connections] = []

    def knows(self, alias: str, server: Sshd, *, settings: str = "") -> None:
        """Takes a host into ~/.ssh/config and known_hosts."""
        self.names(alias, server, settings=settings)
        with self.known_hosts.open("a") as file:
            file.write(server.known_hosts_line)

    def names(self, alias: str, server: Sshd, *, settings: str = "") -> None:
        """Takes a host into ~/.ssh/config alone."""
        with self.config.open("a") as file:
            file.write(
                f"Host {alias}\n  HostName {server.address}\n  Port {server.port}\n  User root\n"
                f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile none\n{settings}"
            )
            if "IdentityFile" not in settings:
                file.write(f"  IdentityFile {self.key}\n")

    def connections(self) -> Connections:
        """A new pool that reads the configuration as it is now."""
        config = Config(str(self.config), system_path="/nonexistent")
        made = Connections(config=config, limits=self._limits, most=self._most)
        self._opened.append(made)
        return made

    def shell(self, alias: str, *, connections: Connections | None = None) -> SshShell:
        """The host by that alias."""
        target = Target(name=alias, address=alias)
        return SshShell(target, connections or self.connections())

    def close(self) -> None:
        for connections in self._opened:
            connections.close()
