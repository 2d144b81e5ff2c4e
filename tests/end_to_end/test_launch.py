"""Launching with real supervision and a real gateway; engines are small programs that can fail."""

import json
import os
import signal
import socket

import pytest

from llmdeploy.cli.starting import bring_up
from llmdeploy.errors import Refused
from llmdeploy.gateway.apply import read_state
from llmdeploy.plan.document import Promises
from llmdeploy.release import journal, ports, stop, supervise
from llmdeploy.release.state import Phase, Standing

from .benches import engines, leftovers, open_bench, site_of

pytestmark = pytest.mark.end_to_end
CLIMB = ["staged", "started", "comm_ready", "loaded", "kv_ready", "warm", "probed"]


@pytest.fixture
def bench(tmp_path_factory):
    with open_bench(tmp_path_factory.mktemp("b")) as bench:
        yield bench


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A bench, its site and the plan of a release that runs there."""
    with open_bench(tmp_path_factory.mktemp("b")) as bench:
        site, live = site_of(bench), bench.plan(notes=("live",))
        bring_up(live, site)
        yield bench, site, live


def test_a_release_climbs_phase_by_phase_and_ends_dark(bench):
    site, plan = site_of(bench), bench.plan()
    release = bring_up(plan, site)
    assert (release.phase, release.standing) == (Phase.PROBED, Standing.CANDIDATE)
    lines = (bench.state_root / "chat/runs" / plan.id / "launch.jsonl").read_text().splitlines()
    evidence = [json.loads(line) for line in lines]
    assert [entry["phase"] for entry in evidence] == CLIMB
    assert evidence[-1]["seen"] == {"completion_tokens": "16"}
    assert "1024 KV tokens" in evidence[4]["seen"]["r1"]
    state = read_state(site.layout, site.shell)
    assert [r.id for r in state.releases] == [plan.id]
    assert state.weights == ()


def test_launching_again_changes_nothing(bench, capsys):
    site, plan = site_of(bench), bench.plan()
    release = bring_up(plan, site)
    before = engines(site, plan.id), len(journal.read(site.layout, site.shell))
    assert bring_up(plan, site) == release
    assert (engines(site, plan.id), len(journal.read(site.layout, site.shell))) == before
    assert "already launched" in capsys.readouterr().err


def test_a_second_release_gets_other_ports_and_cores_and_leaves_the_first_alone(bench):
    site, first, second = site_of(bench), bench.plan(), bench.plan(notes=("second",))
    one = bring_up(first, site)
    journal.mark_standings(
        {one.id: Standing.LIVE}, release=one.id, layout=site.layout, shell=site.shell,
        clock=site.clock,
    )  # fmt: skip
    pids = engines(site, one.id)
    two = bring_up(second, site)
    assert two.endpoints[0].port != one.endpoints[0].port
    assert two.core_slot != one.core_slot or len(first.core_slots) == 1
    assert engines(site, one.id) == pids


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ({"fail_at": "loaded", "how": "told"}, r"needs 9 blocks, found 3"),
        ({"fail_at": "comm_ready", "how": "traceback"}, r"ValueError: the third shard is cut off"),
        ({"fail_at": "kv_ready", "how": "killed"}, r"terminated by SIGKILL"),
        ({"fail_at": "ready", "how": "exit"}, r"exit status 1"),
        ({"fail_at": "request", "how": "traceback"}, r"ValueError: the third shard is cut off"),
        ({"kv_cache_tokens": 512}, r"has 512 tokens of KV cache, the plan promised 1024"),
        ({"answer_tokens": 3}, r"brought 3 tokens and \d+ characters, needed at least 8"),
    ],
    ids=["told", "traceback", "killed", "exit", "dies of a request", "less KV", "short answer"],
)
def test_a_failed_start_names_the_first_cause_and_leaves_nothing(busy, behaviour, cause):
    bench, site, live = busy
    bench.behave(child=True, **behaviour)
    pids, before = engines(site, live.id), read_state(site.layout, site.shell)
    bad = bench.plan(notes=(cause,))
    with pytest.raises(Refused, match=cause) as error:
        bring_up(bad, site)
    assert error.value.fix
    assert engines(site, bad.id) == []
    failed = journal.state(site.layout, shell=site.shell).release(bad.id)
    assert failed.phase == Phase.FAILED
    assert failed.endpoints[0].port not in ports.listening(shell=site.shell)
    assert (bench.state_root / "chat/runs" / bad.id / "launch.jsonl").exists()
    assert engines(site, live.id) == pids
    assert read_state(site.layout, site.shell) == before


def test_a_release_that_failed_can_be_launched_once_the_cause_is_gone(bench):
    site, plan = site_of(bench), bench.plan()
    bench.behave(fail_at="loaded", how="exit")
    with pytest.raises(Refused):
        bring_up(plan, site)
    bench.behave()
    assert bring_up(plan, site).phase == Phase.PROBED


def test_a_release_that_is_no_longer_needed_makes_room(bench, capsys):
    site = site_of(bench)
    plans = [bench.plan(notes=(name,)) for name in ("a", "b", "c")]
    for plan, standing in zip(plans[:2], (Standing.ROLLED_BACK, Standing.LIVE), strict=True):
        bring_up(plan, site)
        journal.mark_standings(
            {plan.id: standing}, release=plan.id, layout=site.layout, shell=site.shell,
            clock=site.clock,
        )  # fmt: skip
    bring_up(plans[2], site)
    state = journal.state(site.layout, shell=site.shell)
    assert [state.release(p.id).phase for p in plans] == ["stopped", "probed", "probed"]
    assert engines(site, plans[0].id) == []
    assert f"{plans[0].id} (rolled_back): stopped to make room" in capsys.readouterr().err
    gateway = read_state(site.layout, site.shell)
    assert [r.id for r in gateway.releases] == [plans[1].id, plans[2].id]


def test_a_killed_live_engine_is_started_again_and_stays_live(bench):
    site, plan = site_of(bench), bench.plan()
    bring_up(plan, site)
    journal.mark_standings(
        {plan.id: Standing.LIVE}, release=plan.id, layout=site.layout, shell=site.shell,
        clock=site.clock,
    )  # fmt: skip
    site.supervisor.shutdown()  # as after a reboot: nothing of the service runs
    assert leftovers(bench) == []
    release = bring_up(plan, site_of(bench))
    assert (release.phase, release.standing) == (Phase.PROBED, Standing.LIVE)


def test_a_taken_gateway_port_is_named_before_any_engine_starts(bench):
    site, plan = site_of(bench), bench.plan()
    with (
        socket.create_server(("127.0.0.1", plan.gateway.port)),
        pytest.raises(Refused, match=rf"gateway port {plan.gateway.port}: process \d+ .*listens"),
    ):
        bring_up(plan, site)
    assert journal.read(site.layout, site.shell) == ()


def test_a_gateway_that_cannot_start_stops_the_release_again(bench):
    site, plan = site_of(bench), bench.plan()
    site.shell.write(f"{site.layout.gateway}", b"a file where a folder must be")
    with pytest.raises(Refused, match="gateway"):
        bring_up(plan, site)
    assert engines(site, plan.id) == []
    assert journal.state(site.layout, shell=site.shell).release(plan.id).phase == Phase.FAILED


def test_a_changed_or_damaged_model_is_refused_with_both_values(bench):
    site, plan = site_of(bench), bench.plan()
    (bench.store / "tiny/model.safetensors").write_bytes(b"we")
    with pytest.raises(Refused, match=r"model\.safetensors: found 2 bytes, needed 7 bytes"):
        bring_up(plan, site)
    other = plan.model.model_copy(update={"manifest_sha256": "f" * 64})
    with pytest.raises(Refused, match=r"found a model with digest \w+, needed .* ffffffffffff"):
        bring_up(bench.plan(model=other), site)
    assert journal.read(site.layout, site.shell) == ()


def test_too_little_memory_is_refused_with_both_values(bench):
    site = site_of(bench)
    figure = bench.plan().figures[0].model_copy(update={"value": 2.0**50})
    with pytest.raises(Refused, match=r"of memory are available, needed 1024\.0 TiB"):
        bring_up(bench.plan(figures=(figure,)), site)


def test_more_kv_than_promised_is_fine(bench):
    bench.behave(kv_cache_tokens=4096)
    promises = Promises(kv_cache_tokens=1024, max_concurrency=8, output_tokens_per_s=1.0)
    assert bring_up(bench.plan(promises=promises), site_of(bench)).phase == Phase.PROBED


def test_an_engine_that_outlived_its_supervisor_is_found_and_stopped(bench):
    site, plan = site_of(bench), bench.plan()
    bring_up(plan, site)
    daemon = int((bench.state_root / "chat/supervisor/supervisord.pid").read_text())
    os.kill(daemon, signal.SIGKILL)
    name = supervise.engine_program(plan.id, "r1")
    assert site.supervisor.state(name).running
    stop.stop_service(purge=False, site=site)
    assert engines(site, plan.id) == []
