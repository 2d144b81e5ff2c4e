"""Where a service stands, the edges to act there, and what a launch is told to do."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from llmdeploy.edge import Clock, Http, Shell
from llmdeploy.errors import InputError
from llmdeploy.release.failure import Reason
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.supervise import Supervisor
from llmdeploy.store import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One host of the cluster, as releases are started and stopped on it."""

    name: str
    address: str
    """Where the other hosts reach it."""
    python: str
    """The engine's."""
    model_store: str
    layout: ServiceLayout
    """The service's files on that host."""
    supervisor: Supervisor
    shell: Shell
    staging_bytes_per_s: float | None = None
    """Most that is sent to it, or by it, a second while models are copied; None: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One service on its gateway host, and on its cluster's hosts where it has any."""

    layout: ServiceLayout
    python: str
    """The host's Python with llmdeploy[host,engine]."""
    supervisor: Supervisor
    shell: Shell
    http: Http
    clock: Clock
    stations: tuple[Station, ...] = ()
    """None for a service on one host."""

    def station(self, host: str) -> Station:
        """The host of that name; InputError where the cluster has none."""
        found = next((one for one in self.stations if one.name == host), None)
        if found is None:
            known = ", ".join(one.name for one in self.stations) or "none"
            raise InputError(
                f"{self.service}: its cluster has no host {host}, found: {known}",
                fix="give the inventory that the plan was made with: --inventory cluster.yaml",
            )
        return found

    @property
    def service(self) -> str:
        """The service's name."""
        return self.layout.root.rpartition("/")[2]

    @property
    def state_root(self) -> str:
        """The folder that holds all services of the host."""
        return self.layout.root.rpartition("/")[0]

    def launch_command(self, release_id: str) -> str:
        """What a person types to start that release again from what the service keeps of it."""
        hosts = ["--inventory", f"{self.layout.root}/cluster.yaml"] if self.stations else []
        return shlex.join(["llmdeploy", "launch", self.layout.release(release_id), *hosts])

    @property
    def ports_guard(self) -> str:
        """The file that a launch holds while it looks for ports: other services look too."""
        return f"{self.state_root}/.ports"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the caller of a launch lets it do and wants to hear."""

    report: Callable[[str], None]
    """Gets a line at each phase."""
    diagnose: Callable[[str], str | None]
    """The first known cause in an engine's log, None where there is none."""
    detach: Callable[[str], None]
    """Takes a release out of the gateway before its engines stop."""
    cause: Callable[[str], Reason | None] = lambda log: None
    """The same cause with what to do about it."""
    key: Key | None = None
    """Opens a sealed model."""
