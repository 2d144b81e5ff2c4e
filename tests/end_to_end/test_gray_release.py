"""A gray release under load, the CLI killed in its middle, and rollback from anywhere."""

import os
import pathlib
import signal
import subprocess
import time

import pytest

from .story import Story, harmed

pytestmark = pytest.mark.end_to_end


def _killed_at_first_share(story: Story, release: str) -> float:
    """Starts `verify`, kills it (SIGKILL) once the release has traffic; the share it had."""
    argv, environment = story.command("verify", "story", "--yes")
    process = subprocess.Popen(
        argv, env=environment, cwd=story.folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(600):
            shares = {w["release"]: w["share"] for w in story.json("status", "story")["weights"]}
            if shares.get(release, 0) > 0:
                return float(shares[release])
            assert process.poll() is None, "verify ended before the release had any traffic"
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    raise AssertionError("the new release never got traffic")


def test_a_killed_cli_leaves_a_whole_state_and_the_next_one_goes_on(
    live: Story, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    old = live.good
    new = live.launch(live.plan("better", batched_tokens=256))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with live.load() as records:
        share = _killed_at_first_share(live, new)
        status = live.json("status", "story")
        shares = {w["release"]: w["share"] for w in status["weights"]}
        assert shares == {old: pytest.approx(1 - share), new: pytest.approx(share)}

        live.run("rollback", "story", "--yes", "--reason", "test", cwd=elsewhere)
        assert live.json("status", "story")["weights"] == [{"release": old, "share": 1.0}]

        live.run("verify", "story", "--release", new, "--yes")
        assert live.json("status", "story")["weights"] == [{"release": new, "share": 1.0}]

        asked_s = time.time()
        live.run("rollback", "story", "--yes", cwd=elsewhere)
        time.sleep(4)
    last_on_new_s = max(r["at_s"] for r in records if r["release"] == new)
    lost = harmed(records, {old, new})
    assert not lost, lost[:5]
    with capsys.disabled():
        print(
            f"\n{len(records)} streams over shifts, kill -9, two rollbacks: 0 broken, 0 non-2xx; "
            f"last request that reached the new release began {last_on_new_s - asked_s:+.2f} s "
            "after `llmdeploy rollback` was called"
        )


def test_a_killed_engine_is_noticed_and_the_old_release_carries_on(live: Story) -> None:
    old = live.good
    new = live.launch(live.plan("better", batched_tokens=320))
    with live.load() as records:
        argv, environment = live.command("verify", "story", "--yes")
        process = subprocess.Popen(
            argv, env=environment, cwd=live.folder, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while True:
            shares = {w["release"]: w["share"] for w in live.json("status", "story")["weights"]}
            if shares.get(new, 0) > 0:
                break
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        for pid in _engine_pids(live, new):
            os.kill(pid, signal.SIGKILL)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 3, said
        time.sleep(2)
    assert live.json("status", "story")["weights"] == [{"release": old, "share": 1.0}]
    on_old = harmed(records, {old})
    assert not on_old, on_old[:5]


def _engine_pids(story: Story, release: str) -> list[int]:
    status = story.json("status", "story")
    port = next(r for r in status["releases"] if r["id"] == release)["endpoints"][0]["port"]
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if "llmdeploy.engine" in words and str(port) in words:
                found.append(int(entry.name))
    assert found, f"no engine process on port {port}"
    return found
