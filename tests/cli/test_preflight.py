"""`llmdeploy preflight`: exit codes, replay, and the real probe on this machine."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from llmdeploy.cli.app import app
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.facts.bundle import Bundle, HostFacts
from llmdeploy.facts.collect import Depth, Paths, collect

from ..facts import hosts

SERVICE = "cluster: cluster.yaml\nmodel: {id: tiny}\n"
CLUSTER = "state_root: /var/lib/llm\nmodel_store: /srv/models\n"
CANARY = "canary-8f3a1c"


def _run(*argv: str) -> Result:
    return CliRunner().invoke(app, ["preflight", *argv], env={"LLMDEPLOY_STATE_ROOT": ""})


def _bundle(folder: pathlib.Path, facts: HostFacts) -> str:
    path = folder / "facts.json"
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(facts,))
    path.write_text(bundle.model_dump_json(by_alias=True))
    return str(path)


@pytest.fixture
def service(tmp_path: pathlib.Path) -> str:
    (tmp_path / "service.yaml").write_text(SERVICE)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return str(tmp_path / "service.yaml")


def test_a_fit_host_exits_0_with_the_table_on_stdout(service: str, tmp_path: pathlib.Path) -> None:
    done = _run(service, "--from", _bundle(tmp_path, hosts.facts()))
    assert done.exit_code == 0
    assert "chat on local: fit" in done.stdout
    assert done.stderr == ""


def test_a_blocked_host_exits_3_and_says_what_to_do(service: str, tmp_path: pathlib.Path) -> None:
    done = _run(service, "--from", _bundle(tmp_path, hosts.facts(glibc="2.28")))
    assert done.exit_code == 3
    assert "error: chat on local: blocked by os.glibc" in done.stderr
    assert "hint: os.glibc: use Debian 11" in done.stderr


def test_an_unknown_gate_exits_3(service: str, tmp_path: pathlib.Path) -> None:
    done = _run(service, "--from", _bundle(tmp_path, hosts.facts(unknown=("glibc",))))
    assert done.exit_code == 3
    assert "blocked by os.glibc" in done.stderr


def test_what_was_found_is_shown_also_where_the_bundle_cannot_be_written(
    service: str, tmp_path: pathlib.Path
) -> None:
    facts = _bundle(tmp_path, hosts.facts())
    done = _run(service, "--from", facts, "--out", f"{facts}/in-a-file.json")
    assert done.exit_code == 2
    assert "chat on local: fit" in done.stdout
    assert "in-a-file.json: File exists" in done.stderr


def test_json_is_the_report_alone(service: str, tmp_path: pathlib.Path) -> None:
    done = _run(service, "--json", "--from", _bundle(tmp_path, hosts.facts(uid=0)))
    report = json.loads(done.stdout)
    assert report["fit"] is True
    assert len(report["findings"]) > 25
    assert report["facts"]["hosts"][0]["uid"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cluster: [\n", "cannot be read as YAML"),
        (SERVICE + "engin: {}\n", "unknown key 'engin'"),
        (SERVICE + "objectives: {ttft_p95: 2}\n", "needed a number with its unit"),
    ],
)
def test_bad_input_exits_2_before_any_host_is_asked(service: str, text: str, said: str) -> None:
    pathlib.Path(service).write_text(text)
    done = _run(service)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "hint: " in done.stderr
    assert "asking" not in done.stderr


def test_a_missing_service_file_exits_2(tmp_path: pathlib.Path) -> None:
    done = _run(str(tmp_path / "none.yaml"))
    assert done.exit_code == 2
    assert "none.yaml: found no readable file" in done.stderr


def test_a_damaged_bundle_exits_2(service: str, tmp_path: pathlib.Path) -> None:
    path = pathlib.Path(_bundle(tmp_path, hosts.facts()))
    path.write_text(path.read_text()[:500])
    done = _run(service, "--from", str(path))
    assert done.exit_code == 2
    assert "facts.json" in done.stderr


def _asked(folder: pathlib.Path, python: str) -> HostFacts:
    paths = Paths(state_root=f"{folder}/state", model_store=f"{folder}/m", service="c", model="x")
    shell, clock = LocalShell(), SystemClock()
    return collect("local", python, paths, depth=Depth.IMPORT, shell=shell, clock=clock).hosts[0]


def test_the_probe_answers_where_tools_are_missing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("sh", "sed", "date", "grep", "cat", "awk", "dirname", "tail", "head", "sort"):
        found = next(p for p in ("/bin", "/usr/bin") if os.path.exists(f"{p}/{tool}"))
        (tmp_path / tool).symlink_to(f"{found}/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = _asked(tmp_path, "/nowhere/python")
    assert facts.memory_total_bytes is not None
    assert facts.listeners is not None
    assert facts.python_error is not None
    for fact in ("uid", "shm_free_bytes", "disk_read_bytes_per_s"):
        assert facts.problem(fact), fact
    assert "not found" in str(facts.problem("uid"))


@pytest.fixture
def listener(tmp_path: pathlib.Path) -> Iterator[int]:
    """A process of this service (its folder is in its arguments) that listens on a port."""
    program = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, f"{tmp_path}/state/c/gateway", CANARY],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.end_to_end
def test_this_machine_tells_its_facts_and_no_secret(
    tmp_path: pathlib.Path, listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_SECRET_TOKEN", CANARY)
    monkeypatch.setenv("HF_HOME", CANARY)
    with socket.create_server(("127.0.0.1", 0)) as own:
        facts = _asked(tmp_path, sys.executable)
        held = {entry.port: entry for entry in facts.listeners or ()}
        mine = held[own.getsockname()[1]]
    assert f"(pid {os.getpid()})" in str(mine.process)
    assert not mine.ours
    assert held[listener].ours
    assert facts.environment_names is not None
    assert "HF_HOME" in facts.environment_names
    assert CANARY not in facts.model_dump_json()
    assert facts.cpu_ids == tuple(sorted(os.sched_getaffinity(0)))
    assert facts.python_version == "{}.{}.{}".format(*sys.version_info[:3])
    assert {entry.name: entry.error for entry in facts.imports or ()}["torch"] is None
    assert facts.bitsandbytes_devices is not None
    assert facts.envoy_version is not None


@pytest.mark.end_to_end
def test_this_machine_is_fit_for_the_real_model_and_its_bundle_replays(
    tmp_path: pathlib.Path, model_store: pathlib.Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "cluster.yaml").write_text(f"state_root: state\nmodel_store: {model_store}\n")
    (tmp_path / "service.yaml").write_text(
        f"cluster: cluster.yaml\nmodel: {{id: smollm2-135m-instruct}}\ngateway: {{port: {port}}}\n"
    )
    path, out = str(tmp_path / "service.yaml"), str(tmp_path / "facts.json")
    begun_s = time.monotonic()
    live = _run(path, "--json", "--out", out)
    print(f"preflight with imports and speeds: {time.monotonic() - begun_s:.1f} s")
    assert live.exit_code == 0, live.stdout
    replayed = _run(path, "--json", "--from", out)
    assert replayed.exit_code == 0
    assert json.loads(replayed.stdout) == json.loads(live.stdout)
    facts: dict[str, Any] = json.loads(live.stdout)["facts"]["hosts"][0]
    for rate in ("core_matmul_flops_per_s", "memory_read_bytes_per_s"):
        assert facts[rate] > 1e9
    assert facts["architecture_known"] is True
    assert not (tmp_path / "state").exists()
