"""A service of vLLM on booted hosts: its documents, its commands, and what it leaves."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from llmdeploy.document import dump, parse
from llmdeploy.plan.cluster import Member
from llmdeploy.plan.document import Plan, Replica

from .bed import Bed
from .machine import Machine

ROOT = pathlib.Path(__file__).parents[2]
MODEL = "smollm2-135m-padded"
KV_BYTES = 2**28
"""Of one rank: 256 MiB are enough for a hundred short answers."""
OUTPUT_TOKENS_PER_S = 100.0
"""Promised of a release here; the planner's figure is for a host that shares no core. Source: own
runs of eight requests at once on two crowded cores: 69 to 105."""
CLUSTER = """
schema: 1
hosts:
{hosts}
network: ethernet-10g
"""
SERVICE = """
schema: 1
name: chat
cluster: cluster.yaml
model: {{id: {model}}}
workload:
  requests_per_day: 100
  peak_factor: 2
  input_tokens: {{mean: 40, p95: 100}}
  output_tokens: {{mean: 16, p95: 48}}
objectives: {{ttft_p95: 30s, tpot_p95: 5s, error_ratio: 0.1%}}
engine: {{kind: vllm, version: {version}, max_model_len: 1024, max_num_seqs: 8}}
gateway: {{port: {port}}}
"""


class ClusterStory:
    """One service's folder and commands; the operator's home is the bed's folder."""

    def __init__(
        self, bed: Bed, *, python: str, version: str, store: pathlib.Path, port: int
    ) -> None:
        self.bed, self.python, self.version, self.port = bed, python, version, port
        self.folder = bed.folder
        self.first = ""
        """Id of the release that runs already, where a test says so."""
        models = self.folder / ".local/share/llmdeploy"
        models.mkdir(parents=True, exist_ok=True)
        (models / "models").symlink_to(store)
        hosts = "\n".join(
            f"- {{name: {m.name}, address: {m.name}, data_address: {m.address}, "
            f"python: {python}, devices: [{{device: cpu, memory: 4GiB}}]}}"
            for m in bed.machines
        )
        (self.folder / "cluster.yaml").write_text(CLUSTER.format(hosts=hosts))
        (self.folder / "service.yaml").write_text(
            SERVICE.format(model=MODEL, version=self.version, port=port)
        )

    def run(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """The ended CLI call; fails the test when its exit code is another than `code`."""
        done = subprocess.run(
            [sys.executable, "-m", "llmdeploy", *words],
            env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        shown = f"llmdeploy {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, shown
        return done

    @contextmanager
    def launching(self, plan: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
        """A launch that goes on beside the block; its lines come on stderr."""
        command = ("launch", str(plan), "--inventory", "cluster.yaml", "--yes")
        with subprocess.Popen(
            [sys.executable, "-m", "llmdeploy", *command],
            env=self.environment, cwd=self.folder, stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL, text=True,
        ) as process:  # fmt: skip
            yield process

    @property
    def environment(self) -> dict[str, str]:
        state = str(self.folder / "state")
        return {**os.environ, "HOME": str(self.folder), "LLMDEPLOY_STATE_ROOT": state}

    def plan(
        self,
        *,
        hosts: int | None = None,
        pipeline: bool = False,
        model: str = MODEL,
        kv_bytes: int = KV_BYTES,
        addresses: Mapping[str, str] | None = None,
        note: str = "",
        **serve: Any,
    ) -> pathlib.Path:
        """The folder of a plan of one replica over all hosts, or the first few: tensors split, or
        a pipeline. `addresses` are of hosts that take another one than theirs.

        A planner would give each host a replica of so small a model: the test says otherwise.
        """
        service = self.folder / "service.yaml"
        (self.folder / "now.yaml").write_text(service.read_text().replace(MODEL, model))
        out = f"plans/{model}"
        self.run("plan", "now.yaml", "--inventory", "cluster.yaml", "--out", out)
        made = next((self.folder / out / "chat").iterdir())
        planned = parse((made / "plan.yaml").read_text(), Plan, place="plan.yaml")
        machines = self.bed.machines[:hosts]
        others = {m.name: m.address for m in machines} | dict(addresses or {})
        members = tuple(
            Member(host=m.name, position=number, address=others[m.name], device_ids=(0,))
            for number, m in enumerate(machines)
        )
        spread = _spread(
            planned, members, pipeline=pipeline, kv_bytes=kv_bytes, note=note, serve=serve
        )
        folder = self.folder / "plans" / "spread" / spread.id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.yaml").write_text(dump(spread))
        return folder

    def launch(self, plan: pathlib.Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return self.run("launch", str(plan), "--inventory", "cluster.yaml", "--yes", code=code)

    def ask(self, release: str, prompt: str = "What is 2+2?", tokens: int = 16) -> str:
        """The answer of a release through the gateway, before it has any traffic."""
        socket = f"{self.folder}/state/chat/gateway/dark.sock"
        if not os.path.exists(socket):
            found = list(pathlib.Path("/tmp").glob("llmdeploy-*/dark.sock"))
            socket = str(max(found, key=lambda path: path.stat().st_ctime))
        with httpx.Client(transport=httpx.HTTPTransport(uds=socket), timeout=120) as client:
            answer = client.post(
                "http://gateway/v1/chat/completions",
                headers={"x-llmdeploy-release": release},
                json={
                    "model": MODEL, "max_tokens": tokens, "temperature": 0,
                    "messages": [{"role": "user", "content": prompt}],
                },
            )  # fmt: skip
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])

    def left(self, machine: Machine) -> list[str]:
        """What a stopped service still has on a host: nothing."""
        shown = machine.run("ps", "-ww", "-eo", "args=").splitlines()
        busy = [
            line
            for line in shown
            if "vllm" in line.lower() or "onhost" in line or line.startswith("sleep 86400")
        ]
        shared = [f"/dev/shm/{name}" for name in machine.run("ls", "/dev/shm").split()]
        ports = machine.run("ss", "-Hltn").splitlines()
        open_ports = [line.split()[3] for line in ports if not line.split()[3].endswith(":22")]
        units = machine.run("sh", "-c", "ls /etc/systemd/system | grep llmdeploy || true").split()
        return [*busy, *shared, *open_ports, *units]


def _spread(
    planned: Plan,
    members: tuple[Member, ...],
    *,
    pipeline: bool,
    kv_bytes: int,
    note: str,
    serve: dict[str, Any],
) -> Plan:
    """The plan with one replica over the members, and what that promises."""
    assert planned.cluster is not None
    first = planned.replicas[0].serve
    hosts = len(members)
    assert first.group is not None
    group = first.group.model_copy(
        update={
            "hosts": hosts,
            "pipeline_parallel": hosts if pipeline else 1,
            "kv_cache_bytes": kv_bytes,
        }
    )
    changes = {"tensor_parallel": 1 if pipeline else hosts, "group": group, "max_num_seqs": 8}
    replica = Replica(
        name="r0", host=members[0].host, serve=first.model_copy(update=changes | serve),
        members=members, part=0,
    )  # fmt: skip
    # 4 KV heads x 64 x 2 (K, V) x 30 layers x 2 B, split over the hosts either way
    tokens = kv_bytes // (4 * 64 * 2 * 30 * 2 // hosts)
    promises = planned.promises.model_copy(
        update={
            "kv_cache_tokens": tokens,
            "max_concurrency": 8,
            "output_tokens_per_s": OUTPUT_TOKENS_PER_S,
        }
    )
    notes = (*planned.notes, note) if note else planned.notes
    return planned.model_copy(update={"replicas": (replica,), "promises": promises, "notes": notes})


def one_core_each(bed: Bed) -> None:
    """Each host starts its programs on one core of this machine: threads of two hosts that share
    cores wait for each other."""
    cores = sorted(os.sched_getaffinity(0))
    for number, machine in enumerate(bed.machines):
        core = cores[number % len(cores)]
        text = f"[Manager]\nCPUAffinity={core}\n"
        machine.write("/etc/systemd/system.conf.d/core.conf", text)
        machine.run("systemctl", "daemon-reexec")


def await_gone(story: ClusterStory, *, limit_s: float = 20) -> dict[str, list[str]]:
    """What is left on the hosts after some seconds: empty lists."""
    deadline_s = time.monotonic() + limit_s
    while True:
        left = {machine.name: story.left(machine) for machine in story.bed.machines}
        if not any(left.values()) or time.monotonic() > deadline_s:
            return left
        time.sleep(0.5)


def phases(story: ClusterStory, release: str) -> dict[str, float]:
    """How long each phase of a launch took, in seconds."""
    path = story.folder / "state/chat/runs" / release / "launch.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["phase"]: line["took_s"] for line in lines}


def events(story: ClusterStory, release: str, host: int) -> list[dict[str, Any]]:
    """What the keeper of a release's rank wrote down, from its launch on."""
    path = f"/root/.local/state/llmdeploy/chat/runs/{release}/r0.events.jsonl"
    return [json.loads(line) for line in story.bed.machines[host].run("cat", path).splitlines()]


@dataclass
class Asked:
    """Requests to one release, one after another."""

    failed: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    """Of each that was answered."""
    longest_s: float = 0.0
    """Until one was answered or refused."""


@contextmanager
def traffic(
    story: ClusterStory, release: str, *, tokens: int = 16, pause_s: float = 0.1
) -> Iterator[Asked]:
    """Requests to the release while the block runs, each so long after the last one's end."""
    asked, done = Asked(), threading.Event()

    def go_on() -> None:
        while not done.wait(pause_s):
            begun_s = time.monotonic()
            try:
                story.ask(release, tokens=tokens)
                asked.took_s.append(time.monotonic() - begun_s)
            except (AssertionError, httpx.HTTPError, OSError) as error:
                asked.failed.append(f"{type(error).__name__}: {error}".splitlines()[0])
            asked.longest_s = max(asked.longest_s, time.monotonic() - begun_s)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield asked
    finally:
        done.set()
        thread.join(130)
        many = len(asked.took_s) + len(asked.failed)
        print(f"{release}: {many} requests meanwhile, {len(asked.failed)} failed")
