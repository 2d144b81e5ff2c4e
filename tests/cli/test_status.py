"""`llmdeploy status`: what is on disk is shown whole, also when nothing runs."""

import json
import shutil

from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.cli.balance_table import balance
from llmdeploy.cli.status import lines
from llmdeploy.release.state import Phase, Standing
from llmdeploy.rollout.overview import Process, ReleaseView, traffic

from .service_at import service_at


def status(root, *words: str):
    return CliRunner().invoke(app, ["status", *words, "--state-root", str(root)])


def test_releases_weights_and_hints_are_shown(tmp_path):
    _, (live, candidate) = service_at(tmp_path, Standing.LIVE, Standing.CANDIDATE)
    result = status(tmp_path, "chat")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0][:2] == ["chat:", "gateway"]
    assert [live, "live", "probed", "100", "%", "bad"] == rows[2][:6]
    assert [candidate, "candidate", "probed", "0", "%", "bad"] == rows[3][:6]
    assert f"hint: release {candidate} is dark: llmdeploy verify chat" in result.stderr
    assert "hint: the gateway does not run" in result.stderr


def test_json_has_weights_and_endpoints_for_programs(tmp_path):
    _, (live,) = service_at(tmp_path, Standing.LIVE)
    seen = json.loads(status(tmp_path, "chat", "--json").stdout)
    assert seen["weights"] == [{"release": live, "share": 1.0}]
    assert seen["releases"][0]["endpoints"][0]["address"] == "127.0.0.1"
    assert (seen["gateway_running"], seen["releases"][0]["healthy"]) == (False, False)


def test_without_a_name_all_services_are_shown(tmp_path):
    service_at(tmp_path, Standing.LIVE)
    seen = json.loads(status(tmp_path, "--json").stdout)
    assert [one["service"] for one in seen] == ["chat"]


def test_a_damaged_service_hides_no_other(tmp_path):
    service_at(tmp_path / "good", Standing.LIVE)
    for name in ("chat", "broken"):
        shutil.copytree(tmp_path / "good/chat", tmp_path / "all" / name)
    (tmp_path / "all/broken/journal.jsonl").write_text("hello\n")
    result = status(tmp_path / "all")
    assert result.exit_code == 3
    assert "chat: gateway" in result.stdout
    assert "broken: " in result.stderr
    assert "line 1: found 'hello', needed a journal entry\nhint: " in result.stderr
    shown = status(tmp_path / "all", "--json")
    assert [one["service"] for one in json.loads(shown.stdout)] == ["chat"]


def test_an_empty_host_says_so(tmp_path):
    result = status(tmp_path)
    assert (result.exit_code, result.stdout) == (
        0,
        "no service here; launch a plan first, or give --state-root\n",
    )


def test_an_unknown_service_lists_the_known_ones(tmp_path):
    service_at(tmp_path, Standing.LIVE)
    result = status(tmp_path, "nope")
    assert result.exit_code == 2
    assert "there is no service 'nope', found: chat" in result.stderr


def test_ranks_are_shown_with_the_memory_that_each_holds() -> None:
    ranks = tuple(
        Process(
            replica=name, running=True, pid=9, restarts=0, memory_bytes=size << 30,
            device_memory_bytes=cards,
        )
        for name, size, cards in (("r0@h1", 3, 60 << 30), ("r0@h2", 2, 30 << 30))
    )  # fmt: skip
    view = ReleaseView(
        id="0123", phase=Phase.PROBED, standing=Standing.LIVE, share=1.0, endpoints=(),
        processes=ranks, healthy=True, engine=None,
        traffic=traffic((), "0123", window_s=300.0),
    )  # fmt: skip
    assert balance(view) == (
        "release 0123: device memory: r0@h1 60.0 GiB, r0@h2 30.0 GiB; "
        "r0@h1 has 100 % more than the least",
        "release 0123: memory: r0@h1 3.0 GiB, r0@h2 2.0 GiB; r0@h1 has 50 % more than the least",
    )
    silent = Process(replica="r0@h3", running=False, pid=None, restarts=0)
    three = balance(view.model_copy(update={"processes": (*ranks, silent)}))
    assert "r0@h2 2.0 GiB, r0@h3 -; r0@h1 has 50 %" in three[1]
    assert balance(view.model_copy(update={"processes": ranks[:1]})) == ()


def test_a_narrow_terminal_gets_two_tables() -> None:
    view = ReleaseView(
        id="4ce3ff844d8a", phase=Phase.PROBED, standing=Standing.ROLLED_BACK, share=1.0,
        endpoints=(), processes=(), healthy=True, engine=None,
        traffic=traffic((), "4ce3ff844d8a", window_s=300.0),
    )  # fmt: skip
    (wide, row) = lines((view,), width=200)
    assert wide.split()[-1] == "KV"
    assert row.startswith("4ce3ff844d8a  rolled_back  probed  100 %    good    0")
    narrow = lines((view,), width=80)
    assert [line.split()[0] for line in narrow] == ["release", view.id] * 2
    assert max(map(len, narrow)) <= 80
