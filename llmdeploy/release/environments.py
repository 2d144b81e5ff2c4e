"""Makes the Python that engines run in on the hosts of a cluster: the same packages on each."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmdeploy import store
from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import Refused
from llmdeploy.inventory import Environment
from llmdeploy.release import aboard, transfer
from llmdeploy.release import hop as host
from llmdeploy.release.site import Station
from llmdeploy.release.together import together
from llmdeploy.release.wheels import Wheels
from llmdeploy.units import show_seconds

WHOLE = "llmdeploy-environment.json"
"""In an environment's folder once it is whole."""
TIMEOUT_S = 3600.0
"""For one host: gigabytes over a slow index. Source: own choice."""
_USED = (
    'for one in /proc/[0-9]*; do case $(tr "\\0" " " <"$one/cmdline" 2>/dev/null) in '
    '"$1"/*) echo "${one#/proc/}" ;; esac; done'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An environment on one host."""

    host: str
    folder: str
    python: str
    """Version of the Python that made it."""
    packages: dict[str, str]
    """Versions by name in lower case."""
    requirements: tuple[str, ...]


def folder_on(station: Station, title: str) -> str:
    """Where the environment of that title lies on the host; the station's store is theirs."""
    return f"{store.absolute(station.model_store, shell=station.shell)}/{title}"


def look(title: str, station: Station) -> Made | None:
    """The environment on that host, None where it is not there or not whole."""
    folder = folder_on(station, title)
    text = station.shell.read(f"{folder}/{WHOLE}")
    return None if text is None else _made(json.loads(text), folder, station)


def make(
    environment: Environment,
    stations: tuple[Station, ...],
    *,
    wheels: Wheels | None,
    report: Callable[[str], None],
    here: Shell,
    clock: Clock,
) -> tuple[Made, ...]:
    """It is on every host, with the same packages; what is there stays as it is.

    Refused with pip's words and the host where it cannot be made, or where packages differ.
    """
    there = together(lambda station: look(environment.title, station), stations)
    missing = tuple(s for s, made in zip(stations, there, strict=True) if made is None)
    known = next((made for made in there if made is not None), None)
    if missing and wheels is not None:
        _bring(wheels, missing, report=report, here=here, clock=clock)

    def act(station: Station, like: Made | None) -> Made:
        begun_s = clock.monotonic_s()
        found = _make_on(station, environment, wheels=wheels, like=like)
        took_s = clock.monotonic_s() - begun_s
        report(f"{station.name}: {len(found.packages)} packages in {show_seconds(took_s)}")
        return found

    fresh: tuple[Made, ...] = ()
    if missing and known is None:  # what the first one resolves to holds for the others
        known = act(missing[0], None)
        fresh, missing = (known,), missing[1:]
    fresh += together(lambda station: act(station, known), missing)
    by_host = {made.host: made for made in (*filter(None, there), *fresh)}
    whole = tuple(by_host[station.name] for station in stations)
    check_alike(whole)
    return whole


def plain(name: str) -> str:
    """A package's name as `packages` has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check_alike(made: tuple[Made, ...]) -> None:
    """Refused with the first package whose versions differ, and where."""
    first, *others = made
    for other in others:
        for name in sorted({*first.packages, *other.packages}):
            mine, its = (one.packages.get(name, "none") for one in (first, other))
            if mine != its:
                raise Refused(
                    f"{other.host}: {other.folder}: found {name} {its}, needed {mine} as on "
                    f"{first.host}",
                    fix=f"rm -r {other.folder} on {other.host}, then make it again",
                )


def remove(title: str, station: Station) -> bool:
    """Whether it was there; it is gone. Refused where a process runs from it."""
    shell, folder = station.shell, folder_on(station, title)
    if not shell.run(("sh", "-c", 'ls -d "$1" 2>/dev/null', "sh", folder), timeout_s=20).stdout:
        return False
    used = shell.run(("sh", "-c", _USED, "sh", folder), timeout_s=30).stdout.split()
    if used:
        raise Refused(
            f"{station.name}: {folder}: process {used[0]} runs from it, needed none",
            fix="stop the release that uses it (llmdeploy stop SERVICE --release ID), then again",
        )
    shell.remove(f"{folder}/{WHOLE}")  # first: half an environment must not look whole
    for path in (folder, f"{folder}.lock", f"{folder}.log"):
        shell.remove(path)
    return True


def _bring(
    wheels: Wheels,
    stations: tuple[Station, ...],
    *,
    report: Callable[[str], None],
    here: Shell,
    clock: Clock,
) -> None:
    hops = together(host.hop, stations)
    name = f"wheels of {wheels.manifest.id}"
    transfer.carry(wheels, hops, name=name, report=report, here=here, clock=clock)


def _make_on(
    station: Station,
    environment: Environment,
    *,
    wheels: Wheels | None,
    like: Made | None,
) -> Made:
    folder = folder_on(station, environment.title)
    program = aboard.bring(station, aboard.archive())
    part = host.hop(station)
    there = part.folder(wheels.manifest) if wheels is not None else None
    spec = {
        "folder": folder,
        "whole": f"{folder}/{WHOLE}",
        "requirements": environment.requirements,
        "constraints": [f"{n}=={v}" for n, v in like.packages.items()] if like else [],
        "wheels": there,
    }
    argv = (station.python, "-I", "-S", program, "environment", json.dumps(spec))
    done = station.shell.run(argv, timeout_s=TIMEOUT_S)
    found = _answer(done.stdout)
    if "error" in found or done.exit_code != 0:
        said = found.get("error") or done.stderr.strip()[-300:] or f"exit code {done.exit_code}"
        raise Refused(f"{station.name}: {folder}: {said}", fix=_fix(said, environment, station))
    if wheels is not None and there is not None:  # they are in the environment now
        station.shell.remove(there)
        own = [f"{part.objects}/{file.sha256}" for file in wheels.manifest.files]
        station.shell.run(("rm", "-f", "--", *own), timeout_s=60)  # others' may still come
    return _made(found, folder, station)


def _fix(said: str, environment: Environment, station: Station) -> str:
    if "ensurepip" in said or "No module named venv" in said:
        return f"apt-get install python3-venv on {station.name}, then make it again"
    if "No matching distribution" in said and environment.wheels is not None:
        return (
            f"put the wheel that is missing, for {station.name}'s Python and processor, into "
            f"{environment.wheels}: pip download --only-binary :all:, on a machine like it"
        )
    if "No matching distribution" in said:
        return (
            "correct the version in `requirements`, or give the host an index that has it (pip "
            "config), or send it `wheels`"
        )
    if "No space left" in said:
        return f"free space on {station.name}, or set environment_store in cluster.yaml"
    if "another command" in said:
        return "run it again when that one is done"
    return f"try {station.python} -m pip install {environment.requirements[0]} on {station.name}"


def _answer(text: str) -> dict[str, Any]:
    lines = [line for line in text.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


def _made(found: dict[str, Any], folder: str, station: Station) -> Made:
    return Made(
        host=station.name,
        folder=folder,
        python=found["python"],
        packages=found["packages"],
        requirements=tuple(found["requirements"]),
    )
