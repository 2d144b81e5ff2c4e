"""A service in memory: releases behind a gateway that routes by its files, clients, one clock.

The journal, the gateway's files, the access log and the judge are the real ones; only the host,
HTTP and time are fakes.
"""

import json
import math
import random
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from llmdeploy.edge import Completed, Response
from llmdeploy.errors import Unreachable
from llmdeploy.gateway.apply import apply, read_state
from llmdeploy.gateway.change import state_for, with_release, with_weights
from llmdeploy.gateway.state import GatewayRelease, KeyRules
from llmdeploy.gateway.xds import version
from llmdeploy.release import journal
from llmdeploy.release.fold import PLANNED, planned_data
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Site
from llmdeploy.release.stage import stage
from llmdeploy.release.state import Endpoint, Phase, Standing
from llmdeploy.release.supervise import GATEWAY, ProcessState, engine_program
from llmdeploy.rollout.gray import Options, verify
from llmdeploy.service import GoldenPrompt, Objectives, ReleasePolicy

from ..fakes import FakeClock, FakeShell
from ..release.made import plan, serve
from ..verdict.engine_double import EngineDouble

LAYOUT = ServiceLayout(root="/state/chat")
POLICY = {"golden": (GoldenPrompt(prompt="What is 2+2?", expect="4"),)}


class InlineExecutor(Executor):
    """Does the work while it is handed in: probes are done when the next look comes."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@dataclass
class RecordingShell(FakeShell):
    """Keeps the order in which files were written."""

    written: list[str] = field(default_factory=list)

    def write(self, path, content, *, mode=0o644):
        self.written.append(path)
        super().write(path, content, mode=mode)

    def append(self, path, content):
        self.written.append(path)
        super().append(path, content)


@dataclass
class Engine(EngineDouble):
    """One release's engine, with the faults a gray release must catch."""

    served_name: str = "tiny"
    max_model_len: int = 128
    time_per_token_s: float = 0.02
    error_ratio: float = 0.0
    pid: int = 100
    alive: bool = True
    healthy: bool = True
    running: int = 0

    def metrics(self):
        text = super().metrics()
        return text.replace(
            "llmdeploy_engine_running 0", f"llmdeploy_engine_running {self.running}"
        )


@dataclass
class World:
    """Everything a rollout touches."""

    rate_per_s: float = 20.0
    shell: RecordingShell = field(default_factory=RecordingShell)
    clock: FakeClock = field(default_factory=FakeClock)
    engines: dict[str, Engine] = field(default_factory=dict)
    ports: dict[int, str] = field(default_factory=dict)
    envoy_answers: bool = True
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    events: list = field(default_factory=list)
    """Functions that are called with the world before each second passes."""
    said: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.shell.on_run = self.run
        self.clock.on_sleep = self.pass_time
        self.site = Site(
            layout=LAYOUT, python="python", supervisor=self, shell=self.shell, http=self,
            clock=self.clock,
        )  # fmt: skip

    # --- what tests do

    def launch(self, *, batched_tokens=64, standing=None, share=0.0, policy=None, **engine):
        """A release that launch left dark, or one that is live; its id."""
        wanted = plan(
            replicas=(plan().replicas[0].model_copy(
                update={"serve": serve(max_num_batched_tokens=batched_tokens)}),),
            release=ReleasePolicy(**(POLICY | (policy or {}))),
            objectives=Objectives(ttft_p95="2s", tpot_p95="200ms"),
        )  # fmt: skip
        number = len(self.engines)
        release, port = wanted.id, 21000 + 8 * number
        self.engines[release] = Engine(**({"pid": 100 + number} | engine))
        self.ports[port] = release
        stage(wanted, layout=LAYOUT, shell=self.shell)
        endpoint = Endpoint(replica="r1", host="local", address="127.0.0.1", port=port)
        data = planned_data(port_block=number, core_slot=None, endpoints=(endpoint,))
        self.note(PLANNED, data, release)
        journal.mark_phase(release, Phase.PROBED, layout=LAYOUT, shell=self.shell, clock=self.clock)
        state = state_for(
            wanted, keys=KeyRules(public_keys=()), before=read_state(LAYOUT, self.shell)
        )
        known = GatewayRelease(id=release, endpoints=(endpoint,), max_concurrency=8)
        apply(with_release(state, known), layout=LAYOUT, shell=self.shell)
        if standing:
            journal.mark_standings(
                {release: standing}, release=release,
                layout=LAYOUT, shell=self.shell, clock=self.clock,
            )  # fmt: skip
        if share:
            self.weigh({release: share})
        return release

    def live(self, **engine):
        """The live release with all traffic."""
        return self.launch(standing=Standing.LIVE, share=1.0, batched_tokens=64, **engine)

    def verify(self, release=None, *, timeout_s=3600.0, once=False):
        """The outcome of the real `verify` in this world."""
        return verify(
            release,
            Options(timeout_s=timeout_s, once=once),
            report=self.said.append,
            executor=InlineExecutor(),
            site=self.site,
        )

    def weigh(self, shares):
        state = with_weights(read_state(LAYOUT, self.shell), shares)
        apply(state, layout=LAYOUT, shell=self.shell)

    def weights(self):
        return {w.release: w.share for w in read_state(LAYOUT, self.shell).weights}

    def standings(self):
        state = journal.state(LAYOUT, shell=self.shell)
        return {r.id: r.standing for r in state.releases}

    def journaled(self):
        return [entry.event for entry in journal.read(LAYOUT, self.shell)]

    def note(self, event, data, release):
        journal.append(
            event, data, release=release, layout=LAYOUT, shell=self.shell, clock=self.clock
        )

    def log(self, release, line):
        self.shell.append(LAYOUT.engine_log(release, "r1"), f"{line}\n".encode())

    # --- the clients

    def pass_time(self, duration_s):
        for event in list(self.events):
            event(self)
        state = read_state(LAYOUT, self.shell)
        weights = {w.release: w.share for w in state.weights}
        for _ in range(int(self.rate_per_s * duration_s) if weights else 0):
            picked = self.rng.choices(list(weights), weights.values())[0]
            self.record(picked, probe=False, fallback=state.fallback)

    def record(self, picked, *, probe, fallback=None):
        """One request of 20 tokens that the gateway sent to a release, as it logs it."""
        engine = self.engines[picked]
        serving = picked if engine.alive else fallback
        failed = serving is None or self.rng.random() < engine.error_ratio
        token_s = self.engines[serving or picked].time_per_token_s
        token_s *= math.exp(self.rng.gauss(0, 0.3))
        ttft_s = 5 * token_s
        line = {
            "at_s": f"{self.clock.time_s - 0.5:.6f}", "id": f"r{self.rng.random()}",
            "probe": probe, "status": 500 if failed else 200, "details": "via_upstream",
            "flags": "-", "pick": picked, "served_by": serving, "attempts": 1,
            "content_type": "text/event-stream",
            "duration_us": round((ttft_s + 19 * token_s) * 1e6), "ttft_us": round(ttft_s * 1e6),
            "prompt_tokens": 10, "completion_tokens": None if failed else 20,
        }  # fmt: skip
        self.shell.append(LAYOUT.access_log, f"{json.dumps(line)}\n".encode())

    # --- Supervisor

    def state(self, name):
        if name == GATEWAY:
            return ProcessState(running=self.envoy_answers, pid=1, restarts=0, exit=None)
        engine = next(e for r, e in self.engines.items() if engine_program(r, "r1") == name)
        return ProcessState(
            running=engine.alive, pid=engine.pid if engine.alive else None, restarts=0,
            exit=None if engine.alive else "exit code 1",
        )  # fmt: skip

    # --- Shell

    def run(self, argv, stdin):
        if argv[0] == "stat":
            text = self.shell.files.get(LAYOUT.access_log)
            shown = "" if text is None else f"1 {len(text)} {LAYOUT.access_log}\n"
            return Completed(argv=argv, exit_code=0, stdout=shown, stderr="")
        return None

    # --- Http

    def request(self, method, url, *, timeout_s, json_body=None, headers=None, socket_path=None):
        if url.startswith("http://admin"):
            return self.admin()
        release = (headers or {}).get("x-llmdeploy-release") or self.ports[_port(url)]
        engine = self.engines[release]
        if not engine.alive:
            raise Unreachable(f"{url}: no answer", fix="start it")
        if url.endswith("/health") and not engine.healthy:
            return Response(status=503, headers={}, body=b"{}")
        answer = engine.request(method, url, json_body)
        if answer is None:
            raise Unreachable(f"{url}: no answer", fix="start it")
        return answer

    def stream(self, method, url, *, timeout_s, json_body=None, headers=None, socket_path=None):
        release = headers["x-llmdeploy-release"]
        self.record(release, probe=True)
        yield from self.engines[release].stream(method, url, json_body)

    def admin(self):
        """Envoy takes every file at once."""
        if not self.envoy_answers:
            raise Unreachable("admin: no answer", fix="start it")
        lines = []
        for path, text in self.shell.files.items():
            name = path.removeprefix(f"{LAYOUT.gateway}/").removesuffix(".json")
            source = {
                "cds": "cluster_manager.cds", "lds": "listener_manager.lds",
                "rds": "http.public.rds.public", "rds-dark": "http.dark.rds.dark",
            }.get(name)  # fmt: skip
            if name.startswith("ecds-"):
                source = f"extension_config_discovery.http_filter.{name.removeprefix('ecds-')}"
            if name.startswith("eds-"):
                source = f"cluster.{name.removeprefix('eds-')}"
            if source and path.startswith(LAYOUT.gateway):
                lines.append(f'{source}.version_text: "{version(text.decode())}"')
        return Response(status=200, headers={}, body="\n".join(lines).encode())


def _port(url):
    return int(url.split("/")[2].rpartition(":")[2])
