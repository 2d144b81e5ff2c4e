"""Launching under systemd user units, by a private user manager in a mount namespace of its own."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.end_to_end
HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the story saw; skipped where this machine cannot run a user manager."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("a mount namespace needs root and unshare")
    if not pathlib.Path("/lib/systemd/systemd").exists() or not shutil.which("systemctl"):
        pytest.skip("systemd is not installed")
    folder = tmp_path_factory.mktemp("u")
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", str(HERE / "systemd_bench.sh"),
         str(folder), sys.executable, "-m", "tests.end_to_end.systemd_story", str(folder)],
        cwd=HERE.parents[1], capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("systemd's user manager does not come up here")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_release_climbs_under_units_in_a_clean_environment(seen):
    assert seen["phase"] == "probed"
    assert seen["programs"] == 2
    assert "XDG_RUNTIME_DIR" not in seen["environment"]
    assert {"HF_HUB_OFFLINE", "HOME", "LANG", "LLMDEPLOY_PROGRAM", "PATH"} <= set(
        seen["environment"]
    )


def test_a_killed_engine_is_started_again_with_its_whole_group(seen):
    assert seen["restarts"] == 1
    assert seen["other_pid"]
    assert seen["processes"] == seen["processes_after_restart"] == 2


def test_a_failed_start_names_its_cause_and_leaves_the_other_release_alone(seen):
    assert "ValueError: the third shard is cut off" in seen["refused"]
    assert seen["left_of_the_failed"] == []
    assert seen["still_stands"]


def test_stopping_leaves_no_process_and_no_unit(seen):
    assert seen["left"] == []
    assert seen["units_left"] == []
