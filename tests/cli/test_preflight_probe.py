"""The probe against vendor tools that are old, hang or lie, on this machine."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.cli.planned import planned_on
from llmdeploy.cli.starting import read_plan
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.facts.bundle import Bundle, HostFacts
from llmdeploy.facts.collect import Depth, Paths, collect, script

from ..facts import hosts, spoiled

CANARY = "c4n4ry8f3a1c0d9e"
OLD = """#!/bin/sh
for argument; do
  case $argument in
    *clocks_event_reasons.hw_slowdown*)
      echo 'Field "clocks_event_reasons.hw_slowdown" is not a valid field to query.'; exit 2 ;;
    *fabric.state*) echo 'Field "fabric.state" is not a valid field to query.'; exit 2 ;;
    --query-gpu=index,pci.bus_id,vbios*)
      [ "${argument##*,}" = retired_pages.pending ] || exit 9
      echo '0, 00000000:3B:00.0, 88.00, 45, [N/A], 42.31, 250.00, 300.00, 0, Not Active, Not Active, Active, Not Active, 3, 3, 16, 16, Disabled, Default, [N/A], [N/A], Enabled, Enabled, 0, 3, 1, 2, No' ;;
    --query-gpu=*) echo '0, Tesla V100-PCIE-32GB, GPU-1, 00000000:3B:00.0, 32510, 32000, 7.0, 470.82.01, 0' ;;
    --query-remapped-rows*) echo '00000000:3B:00.0, [N/A], [N/A], [N/A]' ;;
    --query-compute-apps*) echo "GPU-1, 4242, /opt/python --api-key CANARY, 20000 MiB" ;;
  esac
done
"""  # noqa: E501  # a row of the tool
NO_DRIVER = "#!/bin/sh\necho 'dcmi module initialize failed. ret is -8005'\nexit 1\n"
HANGS = "#!/bin/sh\ntrap '' TERM\necho started >>\"$0.log\"\nwhile :; do sleep 60; done\n"


def _tool(folder: pathlib.Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text.replace("CANARY", CANARY))
    path.chmod(0o755)


def _asked(folder: pathlib.Path) -> HostFacts:
    paths = Paths(state_root=f"{folder}/state", model_store=f"{folder}/m", service="c", model="x")
    shell, clock = LocalShell(), SystemClock()
    return collect("a", "/nowhere/py", paths, depth=Depth.FIND, shell=shell, clock=clock).hosts[0]


@pytest.fixture
def tools(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_fields_that_an_old_tool_does_not_know_are_left_out(tools: pathlib.Path) -> None:
    _tool(tools, "nvidia-smi", OLD)
    facts = _asked(tools)
    assert [card.name for card in facts.accelerators or ()] == ["Tesla V100-PCIE-32GB"]
    assert facts.card_states is not None
    state = facts.card_states[0]
    assert (state.throttles, state.pages_double) == (("hw_power_brake_slowdown",), 1)
    assert (state.power_limit_w, state.rows_pending) == (250.0, None)
    assert facts.card_processes is not None
    assert facts.card_processes[0].name == "python"
    assert CANARY not in facts.model_dump_json()


@pytest.mark.end_to_end
def test_a_tool_that_hangs_is_called_once_and_holds_up_nothing_else(tools: pathlib.Path) -> None:
    _tool(tools, "nvidia-smi", HANGS)
    _tool(
        tools, "npu-smi", "#!/bin/sh\necho 'dcmi module initialize failed. ret is -8005'\nexit 1\n"
    )
    facts = _asked(tools)
    assert (tools / "nvidia-smi.log").read_text().count("started") == 1
    errors = facts.accelerator_errors or ()
    assert "nvidia-smi did not end in time and was stopped" in errors
    assert "dcmi module initialize failed. ret is -8005" in errors
    assert facts.problem("card_links") == "nvidia-smi hung before and was not called again"
    assert facts.memory_total_bytes is not None
    assert facts.clock_offset_s is not None


def test_the_probe_leaves_nothing_behind(tools: pathlib.Path, tmp_path: pathlib.Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    _tool(tools, "npu-smi", "#!/bin/sh\necho nothing\n")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    _asked(tools)
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def teller() -> Iterator[None]:
    """A process with a key in its arguments and another in its environment."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", "--api-key", CANARY],
        env={**os.environ, "HF_TOKEN": f"hf_{CANARY}"},
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_no_secret_of_the_host_reaches_the_bundle(
    tools: pathlib.Path, teller: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", f"hf_{CANARY}")
    monkeypatch.setenv("NCCL_DEBUG", f"INFO\nVLLM_API_KEY={CANARY}\nNCCL_{CANARY}=1")
    monkeypatch.setenv("http_proxy", f"http://me:{CANARY}@proxy:3128")
    monkeypatch.setenv("no_proxy", f"localhost,127.0.0.1,{CANARY}.example")
    _tool(tools, "mx-smi", f"#!/bin/sh\necho 'Error: cannot log in with token={CANARY}'\nexit 1\n")
    facts = _asked(tools)
    text = facts.model_dump_json()
    assert CANARY not in text
    assert "NCCL_DEBUG" in (facts.environment_names or ())
    assert facts.no_proxy_covers == ("localhost", "127.0.0.1")
    assert any("cannot log in with" in error for error in facts.accelerator_errors or ())
    assert any("python" in word for word in facts.exposed_secrets or ())


def test_the_probe_is_plain_sh(tmp_path: pathlib.Path) -> None:
    """No bash, no [[, no arrays: dash parses it whole."""
    path = tmp_path / "probe.sh"
    path.write_text(script())
    ended = subprocess.run(["sh", "-n", str(path)], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def _run(tmp_path: pathlib.Path, *argv: str, **changed: object) -> tuple[int, str, str]:
    (tmp_path / "service.yaml").write_text("cluster: cluster.yaml\nmodel: {id: tiny}\n")
    (tmp_path / "cluster.yaml").write_text(
        "state_root: /var/lib/llm\nmodel_store: /srv/models\nhosts: [{name: local}]\n"
    )
    said = hosts.facts(**{**spoiled.H100, **changed})
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(said,))
    (tmp_path / "facts.json").write_text(bundle.model_dump_json(by_alias=True))
    done = CliRunner().invoke(
        app,
        [
            "preflight",
            str(tmp_path / "service.yaml"),
            "--from",
            str(tmp_path / "facts.json"),
            *argv,
        ],
        env={"LLMDEPLOY_STATE_ROOT": ""},
    )
    return done.exit_code, done.stdout, done.stderr


def test_html_is_written_beside_the_table(tmp_path: pathlib.Path) -> None:
    code, out, _ = _run(tmp_path, "--html", str(tmp_path / "r.html"))
    assert code == 0
    assert "chat on local: fit" in out
    assert "Preflight of chat" in (tmp_path / "r.html").read_text()


def test_changes_since_a_good_run_are_told(tmp_path: pathlib.Path) -> None:
    _run(tmp_path)
    (tmp_path / "facts.json").rename(tmp_path / "good.json")
    _, out, _ = _run(tmp_path, "--against", str(tmp_path / "good.json"), kernel="6.2.0")
    assert "CHANGED SINCE THE LAST GOOD RUN (1)" in out
    assert "local: kernel: 6.1.0 -> 6.2.0" in out


def test_waivers_are_read_and_shown(tmp_path: pathlib.Path) -> None:
    waivers = tmp_path / "w.yaml"
    waivers.write_text(
        "waivers:\n- {check: os.glibc, reason: gateway runs elsewhere, until: 2999-01-31}\n"
    )
    assert _run(tmp_path, glibc="2.28")[0] == 3
    code, out, _ = _run(tmp_path, "--waivers", str(waivers), glibc="2.28")
    assert code == 0
    assert "WAIVED (1)" in out


def test_a_plan_for_these_hosts_is_asked_for(tmp_path: pathlib.Path) -> None:
    code, _, err = _run(tmp_path, "--plan", str(tmp_path / "none"))
    assert code == 2
    assert "needed a plan" in err


def test_what_a_plan_needs_of_a_host_is_its_replicas_together() -> None:
    plans = pathlib.Path(__file__).parents[2] / "plans"
    for path in sorted(plans.rglob("plan.yaml")):
        plan = read_plan(str(path))
        found = planned_on(plan)
        names = {m.host for r in plan.replicas for m in r.members or ()}
        assert set(found) == names | {r.host for r in plan.replicas if r.members is None}
        assert all(one.engine == plan.replicas[0].serve.engine for one in found.values())


def test_findings_tell_their_origin_and_work_in_json(tmp_path: pathlib.Path) -> None:
    _, out, _ = _run(tmp_path, "--json", glibc="2.28")
    finding = next(f for f in json.loads(out)["findings"] if f["check"] == "os.glibc")
    assert (finding["remedy"], finding["origin"]) == ("config", "/proc/made-up")
