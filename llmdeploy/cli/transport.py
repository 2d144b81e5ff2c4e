"""Picks how a host is reached: this machine itself, or SSH over kept connections."""

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from llmdeploy.edge import Shell
from llmdeploy.edge.local import LocalShell
from llmdeploy.inventory import Host

if TYPE_CHECKING:  # paramiko is loaded when the first host is reached by SSH
    from llmdeploy.edge.ssh_pool import Connections

LOCAL = "local"


class Shells:
    """The shells of an inventory's hosts; a context that closes their connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: Connections | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connections:
            self._connections.close()

    def of(self, host: Host, name: str) -> Shell:
        """The shell of one of the host's equals; InputError where ~/.ssh/config is unusable."""
        address = host.addresses[host.names.index(name)]
        if address == LOCAL:
            return LocalShell()
        from llmdeploy.edge.ssh import SshShell
        from llmdeploy.edge.ssh_config import Target

        target = Target(name=name, address=address, user=host.user, port=host.port, key=host.key)
        return SshShell(target, self._pool())

    def _pool(self) -> "Connections":
        from llmdeploy.edge.ssh_pool import Connections

        with self._lock:
            if self._connections is None:
                self._connections = Connections()
            return self._connections
