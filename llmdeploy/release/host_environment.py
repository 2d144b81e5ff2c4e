"""What the hosts of a group must have alike before an engine starts: its version, its address."""

import re
from dataclasses import dataclass

from llmdeploy.errors import Refused, Unreachable
from llmdeploy.release.groups import Rank
from llmdeploy.release.site import Station
from llmdeploy.release.together import together

_ASK = """import importlib.metadata as m, sys
for name in sys.argv[1:]:
    try:
        print(m.version(name))
    except m.PackageNotFoundError:
        print("-")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a host's ranks find there."""

    engine: str
    """Its version."""
    torch: str | None
    """Of the engine's Python; None: it has none."""
    interface: str | None
    """That has the host's data address; None: the host has no `ip` to tell it."""


def check(ranks: tuple[Rank, ...]) -> dict[str, Environment]:
    """By host what is there.

    Refused where an engine is missing, versions differ, or an address is not the host's.
    """
    found = together(_environment, ranks)
    check_versions(tuple((rank, one.engine) for rank, one in zip(ranks, found, strict=True)))
    return {rank.station.name: one for rank, one in zip(ranks, found, strict=True)}


def check_versions(found: tuple[tuple[Rank, str], ...]) -> None:
    """Refused where a host's engine is another version than the plan's flags are for."""
    for rank, version in found:
        group = rank.replica.serve.group
        assert group is not None, "a cluster's plan has groups"
        if base(version) == base(group.version):
            continue
        shown = ", ".join(f"{one.station.name} {number}" for one, number in found)
        raise Refused(
            f"{rank.place}: found {rank.replica.serve.engine} {version}, needed {group.version} "
            f"as planned (hosts: {shown})",
            fix=f"set engine.version: {base(version)} in service.yaml and plan again, or install "
            f"{group.version} for {rank.station.python} on {rank.station.name}",
        )


def base(version: str) -> str:
    """The version without what names the build, as `0.32.0` of `0.32.0+cpu`."""
    return version.partition("+")[0]


def parse_interface(listed: str, address: str) -> str | None:
    """The interface that has the address, in the text of `ip -o -4 addr show`."""
    found = re.search(rf"^\d+:\s+(\S+)\s+inet {re.escape(address)}/", listed, flags=re.MULTILINE)
    return found[1] if found else None


def _environment(rank: Rank) -> Environment:
    engine, torch = _versions(rank)
    return Environment(engine=engine, torch=torch, interface=_interface(rank))


def _versions(rank: Rank) -> tuple[str, str | None]:
    """The engine's and torch's."""
    engine, station = rank.replica.serve.engine, rank.station
    try:
        done = station.shell.run((station.python, "-c", _ASK, engine, "torch"), timeout_s=120)
    except Unreachable as error:
        raise Refused(
            f"{station.name}: {station.python}: {error}",
            fix=f"set `python` of {station.name} in cluster.yaml to one that has {engine}",
        ) from error
    said = done.stdout.split()
    if done.exit_code != 0 or len(said) != 2 or said[0] == "-":
        raise Refused(
            f"{station.name}: {station.python} has no package {engine}, needed it",
            fix=f"{station.python} -m pip install {engine}, or set `python` of {station.name} in "
            "cluster.yaml to one that has it",
        )
    return said[0], None if said[1] == "-" else said[1]


def _interface(rank: Rank) -> str | None:
    station = rank.station
    listed = _addresses(station)
    name = parse_interface(listed, rank.member.address)
    if listed and name is None:
        has = ", ".join(re.findall(r"inet ([\d.]+)/", listed))
        raise Refused(
            f"{station.name}: found the addresses {has}, needed {rank.member.address} among them",
            fix=f"correct data_address of {station.name} in cluster.yaml and plan again",
        )
    return name


def _addresses(station: Station) -> str:
    """Empty where the host has no `ip`: then the libraries choose the interface."""
    try:
        return station.shell.run(("ip", "-o", "-4", "addr", "show"), timeout_s=20).stdout
    except Unreachable:
        return ""
