"""The lab itself: a run that was killed is no obstacle to the next one."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from .cluster_story import ROOT
from .needs import need_namespaces
from .network import Network

pytestmark = pytest.mark.end_to_end
_HOLDS_A_NETWORK = """\
import time
from tests.lab.network import Network
with Network("ldk", size=3, prefix="10.76"):
    print("made", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_run_left_is_taken_away() -> None:
    need_namespaces()
    killed = subprocess.Popen(
        [sys.executable, "-c", _HOLDS_A_NETWORK], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "made\n"
        os.kill(killed.pid, signal.SIGKILL)
    with Network("ldk", size=1, prefix="10.76") as made:
        assert _namespaces() == {made.switch, made.plugs[0].namespace}
    assert not _namespaces()


def _namespaces() -> set[str]:
    return {path.name for path in pathlib.Path("/run/netns").glob("ldk-*")}
