"""Whether Envoy runs what its files say; a change it refuses is taken back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from llmdeploy.edge import Clock, Http, Shell
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.gateway.apply import (
    accepted_state,
    apply,
    keep_accepted,
    read_state,
    state_path,
    writer_path,
)
from llmdeploy.gateway.render import render
from llmdeploy.gateway.state import GatewayState
from llmdeploy.gateway.xds import version
from llmdeploy.release.journal import sole_writer
from llmdeploy.release.layout import ServiceLayout

ADMIN = "http://admin"
SECRET = "sds.json"
_POLL_S = 0.03
_NUDGE_S = 0.5
"""After this long without effect a file is renamed into place again: Envoy then either takes it
or counts one more refusal, which tells a refusal now from one long ago."""
_FILTER = r"(\.version_text|\.update_rejected|\.update_failure|warming_clusters|listeners_warming)$"
_REFUSAL = re.compile(r"config update (?:rejected|failure): (?:in \S+, )?(.*?)(?=\n\[|\Z)", re.S)


def envoy_log(layout: ServiceLayout) -> str:
    """Where Envoy's own messages go."""
    return f"{layout.gateway}/envoy.log"


def confirm(
    layout: ServiceLayout, *, shell: Shell, http: Http, clock: Clock, timeout_s: float = 15
) -> GatewayState:
    """The state that Envoy runs now, new clusters health-checked.

    Files that differ from the state are written again first. Refused when Envoy does not accept
    one, with its reason; the last accepted state is then put back, and traffic was never
    touched. Unreachable when Envoy does not answer or does not take it up in `timeout_s`.
    """
    watch = _Watch(layout=layout, shell=shell, http=http, clock=clock)
    watch.heal()
    start_s = clock.monotonic_s()
    while True:
        late, refused, warming = watch.look(nudge=clock.monotonic_s() - start_s > _NUDGE_S)
        if not late and not warming:
            keep_accepted(watch.state, layout=layout, shell=shell)
            return watch.state
        if refused:
            raise _taken_back(watch.state, refused[0], layout=layout, shell=shell, clock=clock)
        if clock.monotonic_s() - start_s > timeout_s:
            found = ", ".join(late) or "new clusters are still being checked"
            raise Unreachable(
                f"{layout.admin_socket}: not in effect after {timeout_s:g} s: {found}",
                fix=f"see {envoy_log(layout)}",
            )
        clock.sleep(_POLL_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What must be in effect of one file: the source's stat prefix and the version."""

    source: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What Envoy says of its sources: versions, refusals so far, and whether it is warming up."""

    versions: Mapping[str, str]
    refusals: Mapping[str, int]
    warming: int


class _Watch:
    """Compares what Envoy runs with what it should, look by look."""

    def __init__(self, *, layout: ServiceLayout, shell: Shell, http: Http, clock: Clock) -> None:
        self.layout, self.shell, self.http, self.clock = layout, shell, http, clock
        self.state = _must_read(layout, shell)
        self.nudged: Mapping[str, int] | None = None
        """Refusals per source when late files were put in place again; None before."""

    def heal(self, again: tuple[str, ...] = ()) -> None:
        """Writes what differs from the state as it is now, and the files `again` in any case;
        no other command writes at that time."""
        with sole_writer(writer_path(self.layout), shell=self.shell, clock=self.clock):
            self.state = _must_read(self.layout, self.shell)
            apply(self.state, layout=self.layout, shell=self.shell)
            for name in again:
                path = f"{self.layout.gateway}/{name}"
                self.shell.write(path, self.shell.read(path) or b"", mode=0o600)

    def look(self, *, nudge: bool) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Files not in effect, those of them that Envoy refuses, and how much is warming up."""
        self.state = _must_read(self.layout, self.shell)  # another command may have moved on
        wanted = _wanted(self.state, self.layout)
        seen = _seen(self.layout, self.http)
        late = tuple(n for n, w in wanted.items() if seen.versions.get(w.source) != w.version)
        if not late or not nudge:
            return late, (), seen.warming
        if self.nudged is None:
            self.nudged = seen.refusals
            self.heal(again=late)
            # asked again, Envoy takes a secret that it has just refused as known
            secret = wanted[SECRET].source if SECRET in late else ""
            return late, (SECRET,) if seen.refusals.get(secret) else (), seen.warming
        before = self.nudged
        refused = (n for n in late if _rose(wanted[n].source, seen.refusals, before))
        return late, tuple(refused), seen.warming


def parse_stats(text: str) -> Seen:
    """Envoy's `/stats` lines about its sources, keyed by the source's stat prefix."""
    versions: dict[str, str] = {}
    refusals: dict[str, int] = {}
    warming = 0
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        source, _, kind = name.rpartition(".")
        if kind == "version_text":
            versions[source] = value.strip('"')
        elif kind in ("update_rejected", "update_failure"):
            refusals[source] = refusals.get(source, 0) + int(value)
        elif kind in ("warming_clusters", "total_listeners_warming"):
            warming += int(value)
    return Seen(versions=versions, refusals=refusals, warming=warming)


def refusal(log: str) -> str:
    """Envoy's last reason for refusing a file, in one line without the file's content."""
    found = _REFUSAL.findall(log)
    if not found:
        return "no reason in its log"
    reason = " ".join(found[-1].replace("goo.gle/debugonly", "").split())
    return reason.split(": {", 1)[0][:400]


def _seen(layout: ServiceLayout, http: Http) -> Seen:
    answer = http.request(
        "GET", f"{ADMIN}/stats?filter={_FILTER}", timeout_s=5, socket_path=layout.admin_socket
    )
    return parse_stats(answer.body.decode(errors="replace"))


def _rose(source: str, now: Mapping[str, int], before: Mapping[str, int]) -> bool:
    return now.get(source, 0) > before.get(source, 0)


def _wanted(state: GatewayState, layout: ServiceLayout) -> dict[str, Wanted]:
    wanted = {}
    for name, text in render(state, layout).items():
        digest, source = version(text), _source(name)
        if digest and source:
            wanted[name] = Wanted(source=source, version=digest)
    return wanted


def _source(name: str) -> str | None:
    stem = name.removesuffix(".json")
    fixed = {
        "cds": "cluster_manager.cds",
        "lds": "listener_manager.lds",
        "rds": "http.public.rds.public",
        "rds-dark": "http.dark.rds.dark",
        "sds": "sds.server",
    }
    if stem.startswith("ecds-"):
        return f"extension_config_discovery.http_filter.{stem.removeprefix('ecds-')}"
    if stem.startswith("eds-"):
        return f"cluster.{stem.removeprefix('eds-')}"
    return fixed.get(stem)


def _must_read(layout: ServiceLayout, shell: Shell) -> GatewayState:
    state = read_state(layout, shell)
    if state is None:
        raise Refused(
            f"{state_path(layout)}: the service has no gateway, needed one to confirm",
            fix="launch a release first: llmdeploy launch plans/<service>/<id>",
        )
    return state


def _taken_back(
    state: GatewayState, name: str, *, layout: ServiceLayout, shell: Shell, clock: Clock
) -> Refused:
    log = shell.read(envoy_log(layout)) or b""
    reason = refusal(log[-(2**18) :].decode(errors="replace"))
    left = "there is no earlier state to go back to"
    with sole_writer(writer_path(layout), shell=shell, clock=clock):
        accepted = accepted_state(layout, shell)
        if accepted and read_state(layout, shell) == state:
            kept = accepted.model_copy(update={"revoked": state.revoked})  # never undone
            apply(kept, layout=layout, shell=shell)
            left = "the last accepted state is back in place, traffic was not touched"
    return Refused(
        f"{layout.gateway}/{name}: Envoy refused it: {reason}; {left}",
        fix="correct what the reason names (service.yaml, gateway) and run the command again",
    )
