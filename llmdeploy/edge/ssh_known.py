"""Strict host keys: what known_hosts files say of a host, and whether its key is that one."""

import base64
import binascii
import fnmatch
import functools
import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmdeploy.edge.ssh_config import Route
from llmdeploy.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """One line of a known_hosts file that is about a host."""

    place: str
    """`file:line`."""
    file: str
    algorithm: str
    key: bytes
    marker: str | None = None
    """`@revoked` or `@cert-authority`."""


def known_keys(route: Route) -> tuple[KnownKey, ...]:
    """The lines about the host under its name there; hashed names and wildcards count too."""
    return tuple(known for file in route.known_hosts for known in _in_file(file, route.known_as))


def preferred(route: Route) -> tuple[str, ...]:
    """Key algorithms to ask the host for: those that known_hosts can compare with."""
    kinds = [known.algorithm for known in known_keys(route) if known.marker is None]
    rsa = ("rsa-sha2-512", "rsa-sha2-256")
    wanted = [name for kind in kinds for name in (rsa if kind == "ssh-rsa" else (kind,))]
    return tuple(dict.fromkeys(wanted))


def check(name: str, algorithm: str, key: bytes, *, route: Route) -> None:
    """Nothing for a known key; InputError for an unknown, changed or revoked one."""
    lines = known_keys(route)
    revoked = [k for k in lines if k.marker == "@revoked" and k.key == key]
    usable = [k for k in lines if k.marker is None]
    print_ = fingerprint(key)
    if revoked:
        raise InputError(
            f"{name}: {route.shown}: its {algorithm} host key {print_} is revoked by "
            f"{revoked[0].place}",
            fix="do not connect; give the host a new key and write that one into known_hosts",
        )
    if any(k.key == key for k in usable):
        return
    if usable:
        first = next((k for k in usable if k.algorithm == algorithm), usable[0])
        raise InputError(
            f"{name}: {route.shown}: host key changed: found {algorithm} {print_}, needed "
            f"{first.algorithm} {fingerprint(first.key)} as in {first.place}",
            fix="if the host was installed anew, compare the found key on its console "
            "(ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), then drop the old line: "
            f"ssh-keygen -R '{route.known_as}' -f {first.file}; otherwise someone stands between",
        )
    raise InputError(
        f"{name}: {route.shown}: host key unknown: found {algorithm} {print_}, "
        f"{route.known_as} stands in none of {', '.join(route.known_hosts) or 'no file'}",
        fix=f"compare it on the host's console, then take it up: ssh {_by_hand(route)} true",
    )


def fingerprint(key: bytes) -> str:
    """`SHA256:…` as ssh-keygen prints it."""
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def _by_hand(route: Route) -> str:
    jump = f"-J {route.via.place} " if route.via else ""
    return f"{jump}-p {route.port} {route.user}@{route.address}"


def _in_file(path: str, known_as: str) -> Iterator[KnownKey]:
    try:
        stamp = os.stat(path)
        lines = _lines(path, (stamp.st_mtime_ns, stamp.st_size))
    except OSError:  # ssh too takes a file it cannot read for an empty one
        return
    may_be = sorted((*lines.plain.get(known_as.lower(), ()), *lines.others))
    for number, marker, fields in may_be:
        if not _names(fields[0], known_as):
            continue
        try:
            key = base64.b64decode(fields[2], validate=True)
        except binascii.Error:
            continue
        place = f"{path}:{number}"
        yield KnownKey(place=place, file=path, algorithm=fields[1], key=key, marker=marker or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """Number, marker and fields of a file's lines."""

    plain: Mapping[str, Sequence[tuple[int, str, Sequence[str]]]]
    """Those that are about names as they stand, by each name."""
    others: Sequence[tuple[int, str, Sequence[str]]]
    """Hashed names and patterns: any host's may be among them."""


@functools.lru_cache(maxsize=16)
def _lines(path: str, stamp: tuple[int, int]) -> _Lines:
    """A file is read once while it stays as it is: each connection looks into it twice."""
    plain: dict[str, list[tuple[int, str, Sequence[str]]]] = {}
    others: list[tuple[int, str, Sequence[str]]] = []
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#"):
            continue
        if fields[0].startswith("|") or any(sign in fields[0] for sign in "*?!"):
            others.append((number, marker, fields))
            continue
        for name in set(fields[0].lower().split(",")):
            plain.setdefault(name, []).append((number, marker, fields))
    return _Lines(plain=plain, others=others)


def _names(patterns: str, known_as: str) -> bool:
    if patterns.startswith("|1|"):
        return _hashed(patterns, known_as)
    wanted, named = known_as.lower(), False
    for pattern in patterns.lower().split(","):
        bare = pattern.removeprefix("!")
        wild = "*" in bare or "?" in bare  # [ is not: it stands before a port
        if fnmatch.fnmatchcase(wanted, bare.replace("[", "[[]")) if wild else bare == wanted:
            if pattern.startswith("!"):
                return False
            named = True
    return named


def _hashed(pattern: str, known_as: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in pattern[3:].split("|"))
    except (ValueError, binascii.Error):
        return False
    # ssh writes and looks up names in small letters
    return hmac.compare_digest(hmac.digest(salt, known_as.lower().encode(), "sha1"), digest)
