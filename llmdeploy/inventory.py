"""Which hosts there are, how to reach them and where things lie on them (cluster.yaml)."""

import datetime
import hashlib
import json
import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from llmdeploy.document import HumanDocument
from llmdeploy.units import Bytes, BytesPerS

MOST_JOINED = 1024
"""Devices that one link joins at most. Source: own choice: beyond any rack that is sold."""
LEAST_MEMORY_BYTES = 2**28
"""Of a device. Source: own choice: an engine's own context takes that much."""
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._ -]+\])?==[^=<>~!, ]+")


class Devices(HumanDocument):
    """Equal accelerators of one host, declared rather than asked for."""

    device: str
    """Name or catalog id, such as `RTX 4090`."""
    count: int = Field(default=1, ge=1, le=128)
    memory_bytes: Bytes | None = None
    """Of one device; the catalog's where left out."""
    link: str | None = None
    """Between the host's devices, or those of a domain; the catalog's where left out."""
    link_domains: int | tuple[tuple[int, ...], ...] | None = Field(default=None)
    """What `link` joins, where not all devices of the host: how many each (2: NVLink pairs; 72:
    racks over hosts of fewer), or the domains themselves, such as [[0, 1], [2, 3]]."""
    link_between: str | None = None
    """Between the domains of the host; its PCIe where left out."""
    price_per_hour: float | None = Field(default=None, ge=0)
    """Of one device, in the inventory's currency."""

    @field_validator("link_domains")
    @classmethod
    def _some(cls, given: int | tuple[tuple[int, ...], ...] | None) -> Any:
        if isinstance(given, int) and not 1 <= given <= MOST_JOINED:
            raise ValueError(f"found {given}, needed 1 to {MOST_JOINED} devices")
        if isinstance(given, tuple) and not (given and all(given)):
            raise ValueError("found an empty domain, needed devices in each")
        return given

    @field_validator("memory_bytes")
    @classmethod
    def _enough(cls, given: int | None) -> int | None:
        if given is not None and given < LEAST_MEMORY_BYTES:
            raise ValueError(
                f"found {given} bytes, needed at least {LEAST_MEMORY_BYTES >> 20}MiB of a device"
            )
        return given


class Host(HumanDocument):
    """One machine. `local` is the machine the CLI runs on, reached without SSH.

    What SSH needs beyond the address comes from `~/.ssh/config`, where it is left out here.
    """

    name: str = Field(default="local", pattern=r"^[a-z][a-z0-9-]{0,30}$")
    count: int = Field(default=1, ge=1, le=10_000)
    """Equal hosts; more than one are named NAME-1, NAME-2, …"""
    address: str = "local"
    """`local`, or an alias of `~/.ssh/config`, a host name or an IP address; equal hosts have
    `{number}` in it."""
    user: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    key: str | None = None
    """Private key file on the machine the CLI runs on; the agent holds its passphrase."""
    data_address: str = "127.0.0.1"
    """Address engines bind to and the gateway reaches them at; equal hosts have `{number}` in
    it."""
    python: str | None = None
    """Python with llmdeploy[host,engine], or the one that makes its environment; the CLI's own
    where left out, by SSH python3."""
    environment: str | None = None
    """One of `environments`, for engines: `llmdeploy environments make` makes it."""
    devices: tuple[Devices, ...] = ()
    """Declared devices: `plan --inventory` needs no facts of a host that has them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The host's name, or those of all its equals."""
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.count + 1))

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each of `names`."""
        if self.count == 1:
            return (self.address,)
        return tuple(
            self.address.replace("{number}", str(number)) for number in range(1, self.count + 1)
        )

    @property
    def data_addresses(self) -> tuple[str | None, ...]:
        """The data address of each of `names`; None where equal hosts share one."""
        if self.count == 1:
            return (self.data_address,)
        if "{number}" not in self.data_address:
            return (None,) * self.count
        return tuple(
            self.data_address.replace("{number}", str(number))
            for number in range(1, self.count + 1)
        )

    def numbered(self, name: str) -> "Host":
        """The same host for one of its equals: with that one's data address, where it is known."""
        if self.count > 1 and "{number}" not in self.data_address:
            return self
        address = self.data_addresses[self.names.index(name)]
        return self if address is None else self.model_copy(update={"data_address": address})

    @model_validator(mode="after")
    def _own_addresses(self) -> Self:
        if self.count > 1 and self.address != "local" and "{number}" not in self.address:
            raise ValueError(
                f"found address {self.address} for {self.count} hosts, needed {{number}} in it, "
                "like gpu-{number}"
            )
        return self


class Ports(HumanDocument):
    """Ports that llmdeploy may use; each release takes one block."""

    first: int = Field(default=21000, ge=1024, le=65000)
    block_size: int = Field(default=8, ge=4, le=64)
    blocks: int = Field(default=50, ge=2, le=500)


class Staging(HumanDocument):
    """How models come to the hosts."""

    bandwidth_bytes_per_s: BytesPerS | None = None
    """Most that this machine, and each host, sends a second; no limit where left out."""


class Environment(HumanDocument):
    """A Python with an engine in it that llmdeploy makes on the hosts that name it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")
    requirements: tuple[str, ...] = Field(min_length=1, max_length=1000)
    """What pip installs, such as `vllm==0.11.0`: each with the version that it must have."""
    wheels: str | None = None
    """Folder of wheels on the machine the CLI runs on, sent once and passed on by the hosts; the
    hosts' own package index, as their pip is set up, where left out."""

    @field_validator("requirements")
    @classmethod
    def _exact(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for line in given:
            if not _REQUIREMENT.fullmatch(line):
                raise ValueError(f"found {line!r}, needed NAME==VERSION, such as vllm==0.11.0")
        return given

    @property
    def digest(self) -> str:
        """Of what it is made of: another list is another environment."""
        return hashlib.sha256(json.dumps(sorted(self.requirements)).encode()).hexdigest()

    @property
    def title(self) -> str:
        """The name of its folder in the hosts' stores."""
        return f"{self.name}-{self.digest[:12]}"


class Waiver(HumanDocument):
    """One check that does not count until a day, and why."""

    check: str = Field(pattern=r"^[a-z0-9_.]+$")
    """Id of the check, such as `os.swap`."""
    host: str | None = None
    """Only there; on all hosts where left out."""
    reason: str = Field(min_length=8)
    """Why it is accepted, in words."""
    until: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    """Last day (UTC) that it holds, such as 2027-01-31."""

    @model_validator(mode="after")
    def _is_a_day(self) -> "Waiver":
        try:
            datetime.date.fromisoformat(self.until)
        except ValueError as error:
            message = f"found until {self.until}, needed a day that exists, like 2027-01-31"
            raise ValueError(message) from error
        return self

    @property
    def ends_s(self) -> float:
        """The first second after its last day, since 1970."""
        day = datetime.date.fromisoformat(self.until) + datetime.timedelta(days=1)
        midnight = datetime.datetime.combine(day, datetime.time(), tzinfo=datetime.UTC)
        return midnight.timestamp()


class Inventory(HumanDocument):
    """The cluster. State of every service lives under `state_root` on the gateway host."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    hosts: tuple[Host, ...] = Field(default=(Host(),), min_length=1, max_length=10_000)
    network: str | None = None
    """Link between hosts, such as `ethernet-25g`; replicas stay within a host where left out."""
    currency: str | None = None
    """Of the devices' prices, such as EUR."""
    state_root: str = "~/.local/state/llmdeploy"
    model_store: str = "~/.local/share/llmdeploy/models"
    environment_store: str = "~/.local/share/llmdeploy/environments"
    environments: tuple[Environment, ...] = Field(default=(), max_length=100)
    ports: Ports = Ports()
    staging: Staging = Staging()
    waivers: tuple[Waiver, ...] = ()
    """Findings of preflight that are accepted for a while; `--waivers FILE` adds to them."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [name for host in self.hosts for name in host.names]
        twice = sorted({name for name in names if names.count(name) > 1}) if _repeats(names) else []
        if twice:
            raise ValueError(f"found hosts named {', '.join(twice)} twice, needed distinct names")
        there = set(names)
        strange = [w.host for w in self.waivers if w.host is not None and w.host not in there]
        if strange:
            raise ValueError(f"found a waiver for {strange[0]}, needed one of the hosts' names")
        return self

    @model_validator(mode="after")
    def _known_environments(self) -> Self:
        names = [environment.name for environment in self.environments]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"found environments named {', '.join(twice)} twice, needed distinct names"
            )
        for host in self.hosts:
            if host.environment is not None and host.environment not in names:
                known = ", ".join(names) or "none"
                raise ValueError(
                    f"found environment {host.environment} of {host.name}, needed one of "
                    f"`environments`: {known}"
                )
        return self

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Keys and values of the folders that lie on the hosts."""
        return tuple(
            (key, getattr(self, key)) for key in ("state_root", "model_store", "environment_store")
        )

    def python_of(self, host: Host) -> str | None:
        """The host's Python: of its environment, or as its entry has it; None: it names none."""
        if host.environment is None:
            return host.python
        wanted = next(one for one in self.environments if one.name == host.environment)
        return f"{self.environment_store}/{wanted.title}/bin/python"

    @property
    def gateway_host(self) -> Host:
        """The host that runs the gateway and keeps the state: the first one."""
        return self.hosts[0]

    @property
    def gateway_name(self) -> str:
        """Its name; that of the first where it has equals."""
        host = self.gateway_host
        return host.name if host.count == 1 else f"{host.name}-1"


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)
