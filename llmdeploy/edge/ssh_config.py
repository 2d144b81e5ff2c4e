"""The way to a host: its address in the inventory joined with what `~/.ssh/config` says of it."""

import getpass
import glob
import ipaddress
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from llmdeploy.errors import InputError

USER_CONFIG = "~/.ssh/config"
SYSTEM_CONFIG = "/etc/ssh/ssh_config"
DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
SSH_PORT = 22
_MOST_HOPS = 8
_MOST_INCLUDES = 16
"""Depth at which OpenSSH gives up too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A host as the inventory names it; what it leaves out comes from `~/.ssh/config`."""

    name: str
    address: str
    """Alias of `~/.ssh/config`, host name or IP; `user@` before and `:port` after it may stand."""
    user: str | None = None
    port: int | None = None
    key: str | None = None
    """Path of a private key, tried before all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """All that is needed to connect; equal routes share one connection."""

    address: str
    port: int
    user: str
    keys: tuple[str, ...]
    """Private key files that exist, in the order they are tried."""
    only_these_keys: bool
    """Whether the agent's other keys are left out (IdentitiesOnly)."""
    known_as: str
    """Name that known_hosts has the host under, `[name]:port` where the port is not 22."""
    known_hosts: tuple[str, ...]
    via: "Route | None" = None
    """The jump host this one is reached through."""
    bulk: bool = False
    """A connection apart from the others', for what sends gigabytes."""

    @property
    def shown(self) -> str:
        """`user@address:port` and the jump hosts, for messages."""
        through = f" through {self.via.shown}" if self.via else ""
        return f"{self.place}{through}"

    @property
    def place(self) -> str:
        """`user@address:port` as ssh takes it after -J: an IPv6 address in brackets."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.user}@{address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A `Host` or `Match` with what belongs to it."""

    lines: tuple[str, ...]
    names: frozenset[str] | None
    """The only hosts it is about; None: it may be about any."""


class Config:
    """What `~/.ssh/config` and the system's ssh_config say, read once."""

    def __init__(self, path: str = USER_CONFIG, *, system_path: str = SYSTEM_CONFIG) -> None:
        self._place = path
        self._blocks = _blocks([*_lines_of(path), *_lines_of(system_path)])
        self._parsed(lambda block: True)

    def route(self, target: Target) -> Route:
        """The way to a host; InputError where the configuration asks for what is not supported."""
        return self._route(target, hops=0)

    def _route(self, target: Target, *, hops: int) -> Route:
        if hops > _MOST_HOPS:
            raise InputError(
                f"{target.name}: ProxyJump in {self._place} leads over more than {_MOST_HOPS} "
                "hosts, or in a circle",
                fix=f"run `ssh -G {target.address} | grep -i proxyjump` and mend that entry",
            )
        user, alias, port = _parts(target.address)
        said = self._said(alias)
        if "proxycommand" in said and "proxyjump" not in said:
            raise InputError(
                f"{target.name}: {self._place} reaches {alias} with ProxyCommand, "
                "which cannot be given a deadline",
                fix=f"write `ProxyJump HOST` in its place for {alias}",
            )
        found_port = target.port or port or int(said.get("port", SSH_PORT))
        address = _canonical(said["hostname"])
        known_as = said.get("hostkeyalias") or address
        route = Route(
            address=address,
            port=found_port,
            user=target.user or user or said.get("user") or getpass.getuser(),
            keys=_keys(target, said),
            only_these_keys=said.get("identitiesonly", "no").lower() == "yes",
            known_as=known_as if found_port == SSH_PORT else f"[{known_as}]:{found_port}",
            known_hosts=_known_hosts(said),
        )
        return replace(route, via=self._via(target, said.get("proxyjump"), hops=hops))

    def _via(self, target: Target, jumps: str | None, *, hops: int) -> Route | None:
        """The last of the jump hosts, each reached through the one before it."""
        via: Route | None = None
        for jump in (jumps or "none").split(","):
            if jump.strip().lower() != "none":
                hop = Target(name=target.name, address=jump.strip())
                route = self._route(hop, hops=hops + 1)
                via = replace(route, via=via) if via else route
        return via

    def _said(self, alias: str) -> Mapping[str, Any]:
        # paramiko compares an alias with every pattern of the file: with an entry a host that
        # took 2.8 s for 256 of them, so entries that name other hosts are left out before
        config = self._parsed(lambda block: block.names is None or alias in block.names)
        try:
            return config.lookup(alias)
        except (ConfigParseError, ImportError, ValueError) as error:  # `Match exec` wants invoke
            raise _unreadable(self._place, error) from error

    def _parsed(self, wanted: Callable[[_Block], bool]) -> SSHConfig:
        lines = [line for block in self._blocks if wanted(block) for line in block.lines]
        try:
            return SSHConfig.from_text("\n".join(lines))
        except ConfigParseError as error:
            raise _unreadable(self._place, error) from error


def _parts(address: str) -> tuple[str | None, str, int | None]:
    """User, host and port of `user@host:port`, `[v6]:port`, `v6` or `host`."""
    user, at, place = address.rpartition("@")
    bracketed = re.fullmatch(r"\[(.+)\](?::(\d+))?", place)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    elif place.count(":") == 1:
        host, port = place.split(":")
    else:
        host, port = place, None
    if port is not None and not (port.isdigit() and 0 < int(port) < 65536):
        raise InputError(
            f"{address}: found port {port!r}, needed 1 to 65535",
            fix="write the address as host, user@host or user@host:port",
        )
    return (user if at else None), host, int(port) if port else None


def _canonical(hostname: str) -> str:
    """A host name as it stands, an IPv6 address in its shortest form, as known_hosts has it.

    `%%` before an interface is HostName's way to write one `%`, which paramiko leaves.
    Source: OpenSSH 9.2, ssh.c, `resolve_canonicalize`.
    """
    address, percent, interface = hostname.replace("%%", "%").partition("%")
    try:
        return f"{ipaddress.IPv6Address(address)}{percent}{interface}"
    except ValueError:
        return hostname


def _keys(target: Target, said: Mapping[str, Any]) -> tuple[str, ...]:
    named = [target.key] if target.key else []
    listed = said.get("identityfile") or ([] if named else DEFAULT_KEYS)
    paths = [os.path.expanduser(path) for path in (*named, *listed)]
    if target.key and not os.path.isfile(paths[0]):
        raise InputError(
            f"{target.name}: key: found no file {paths[0]}, needed a private key",
            fix="correct `key` in cluster.yaml, or leave it out to use ~/.ssh/config and the agent",
        )
    return tuple(dict.fromkeys(path for path in paths if os.path.isfile(path)))


def _known_hosts(said: Mapping[str, Any]) -> tuple[str, ...]:
    own = said.get("userknownhostsfile", USER_KNOWN_HOSTS)
    system = said.get("globalknownhostsfile", SYSTEM_KNOWN_HOSTS)
    names = [name for name in f"{own} {system}".split() if name.lower() != "none"]
    return tuple(os.path.expanduser(name.strip('"')) for name in names)


def _blocks(lines: Sequence[str]) -> tuple[_Block, ...]:
    """The text cut before each `Host` and `Match`."""
    blocks: list[_Block] = []
    names: frozenset[str] | None = None
    block: list[str] = []
    for line in lines:
        match = re.match(r"\s*(host|match)[\s=]+(.*)", line, re.IGNORECASE)
        if match:
            blocks.append(_Block(lines=tuple(block), names=names))
            named = frozenset(match[2].replace('"', "").split())
            plain = match[1].lower() == "host" and not re.search(r"[*?!]", match[2])
            block, names = [], named if plain else None
        block.append(line)
    return (*blocks, _Block(lines=tuple(block), names=names))


def _lines_of(path: str) -> Iterator[str]:
    """The file with its `Include` lines filled in, which paramiko does not do."""
    file = pathlib.Path(path).expanduser()
    return _lines(file, folder=file.parent, depth=0)


def _lines(file: pathlib.Path, *, folder: pathlib.Path, depth: int) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(str(file), error) from error
    for line in text.splitlines():
        match = re.match(r"\s*include[\s=]+(.+?)\s*$", line, re.IGNORECASE)
        if not match:
            yield line
        elif depth < _MOST_INCLUDES:
            for pattern in match[1].replace('"', "").split():
                whole = os.path.join(folder, os.path.expanduser(pattern))
                for name in sorted(glob.glob(whole)):
                    yield from _lines(pathlib.Path(name), folder=folder, depth=depth + 1)


def _unreadable(path: str, error: Exception) -> InputError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return InputError(
        f"{path}: cannot be read as SSH configuration: {reason}",
        fix="run `ssh -G some-host` to see which line OpenSSH names, and mend it",
    )
