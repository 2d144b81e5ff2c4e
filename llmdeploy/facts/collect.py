"""Asks one host everything in one command and reads its answer into a bundle."""

import functools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from importlib.resources import files

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import Unreachable
from llmdeploy.facts.bundle import Asked, Bundle, HostFacts
from llmdeploy.facts.read import read_facts
from llmdeploy.facts.redact import redact
from llmdeploy.facts.section import marked, split

PROBE_TIMEOUT_S = 180.0
"""More than all of the probe's own limits that can run out on one host together."""


PARTS = (("@HOST@", "probe_host.sh"), ("@CARDS@", "probe_cards.sh"))
"""Lines of the probe, and the files that stand in their place."""
PROGRAMS = (
    ("@SHOW@", "probe_show.py"),
    ("@PORTS@", "probe_ports.py"),
    ("@RUNTIME@", "probe_runtime.py"),
    ("@IMPORTS@", "probe_imports.py"),
    ("@THERE@", "probe_there.py"),
)
"""Strings of the probe's program for Python, and the files whose text they are."""


class Depth(StrEnum):
    """What the probe does beside asking; its word for it."""

    FIND = "quick"
    """The engine's packages are only found."""
    IMPORT = "no"
    """They are imported, as the engine will."""
    MEASURE = "yes"
    """And with them speeds are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """What the host is asked about; `~` in paths is its user's home."""

    state_root: str
    model_store: str
    service: str
    model: str
    """Id of the service's model in the store."""
    tls_certificate: str | None = None
    tls_key: str | None = None


@functools.cache
def script() -> str:
    """The probe: one POSIX sh script with its parts and the programs for awk and Python in it."""
    text = _part("probe.sh")
    for place, name in PARTS:
        text = text.replace(f"\n{place}\n", f"\n{_part(name)}\n")
    program = _part("probe_python.py")
    for place, name in PROGRAMS:
        program = program.replace(f'"{place}"', repr(_part(name)))
    text = text.replace("=@FILES@", f"={shlex.quote(_part('probe_files.awk'))}")
    return text.replace("=@PYTHON@", f"={shlex.quote(program)}")


def _part(name: str) -> str:
    return files("llmdeploy.facts").joinpath(name).read_text()


def command(python: str, paths: Paths, *, depth: Depth) -> Sequence[str]:
    """The command whose stdin is the probe."""
    tls = (paths.tls_certificate or "", paths.tls_key or "")
    asked = (paths.state_root, paths.model_store, paths.service, paths.model)
    return ["sh", "-s", "--", python, *asked, depth.value, *tls]


def collect(
    host: str,
    python: str,
    paths: Paths,
    *,
    depth: Depth = Depth.MEASURE,
    timeout_s: float = PROBE_TIMEOUT_S,
    shell: Shell,
    clock: Clock,
) -> Bundle:
    """What the host says, as a bundle of one host; Unreachable when it does not answer at all."""
    facts = ask(host, python, paths, depth=depth, timeout_s=timeout_s, shell=shell, clock=clock)
    return Bundle(schema=1, llmdeploy=version("llmdeploy"), hosts=(facts,))


def ask(
    host: str,
    python: str,
    paths: Paths,
    *,
    depth: Depth,
    timeout_s: float,
    shell: Shell,
    clock: Clock,
) -> HostFacts:
    """What the host says; Unreachable when it does not answer at all."""
    begun_s = clock.monotonic_s()
    argv = command(python, paths, depth=depth)
    ended = shell.run(argv, timeout_s=timeout_s, stdin=script())
    sections = split(redact(marked(ended.stdout)))
    if not sections:
        said = redact(ended.stderr or ended.stdout).strip()[:300] or "nothing"
        raise Unreachable(
            f"{host}: the probe ended with exit code {ended.exit_code} and said {said!r}, "
            "needed its sections",
            fix=f"run `sh -c 'echo ok'` on {host} by hand: it needs a POSIX shell",
        )
    return read_facts(
        sections,
        host=host,
        asked=Asked(
            python=python,
            state_root=paths.state_root,
            model_store=paths.model_store,
            service=paths.service,
            model=paths.model,
            measured=depth == Depth.MEASURE,
        ),
        collected_s=clock.now_s(),
        duration_s=clock.monotonic_s() - begun_s,
    )
