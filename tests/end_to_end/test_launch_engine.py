"""Launching the real engine with the real model: a killed command, a clean end."""

import json
import os
import pathlib
import signal
import time

import pytest

from llmdeploy.cli.context import make_site
from llmdeploy.release import journal
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.state import Phase

from .benches import DEADLINE_S, command, engines_of, phases, run
from .story import free_port

pytestmark = pytest.mark.end_to_end
SERVICE = """
cluster: cluster.yaml
model: {{id: smollm2-135m-instruct}}
workload: {{requests_per_day: 1000}}
engine: {{max_model_len: 512}}
gateway: {{port: {port}}}
"""


@pytest.fixture
def service(tmp_path_factory, model_store):
    """A folder with service.yaml and cluster.yaml; the service is stopped in the end."""
    folder = tmp_path_factory.mktemp("e")
    (folder / "service.yaml").write_text(SERVICE.format(port=free_port()))
    cluster = f"state_root: {folder}/s\nmodel_store: {model_store}\n"
    (folder / "cluster.yaml").write_text(cluster)
    yield folder
    if (folder / "s" / "chat").exists():
        run("stop", "chat", "--purge", "--yes", state_root=folder / "s")


def planned(folder: pathlib.Path) -> pathlib.Path:
    words = ("plan", f"{folder}/service.yaml", "--out", f"{folder}/plans", "--json")
    exit_code, _, stderr = run(*words, state_root=folder / "s")
    assert exit_code == 0, stderr
    return next((folder / "plans" / "chat").iterdir())


def test_the_real_engine_goes_on_after_its_launch_was_killed_and_stops_clean(service):
    plan, state_root = planned(service), service / "s"
    process = command("launch", str(plan), "--yes", state_root=state_root)
    deadline_s = time.monotonic() + DEADLINE_S
    while "comm_ready" not in phases(state_root):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    site = make_site(ServiceLayout(root=f"{state_root}/chat"), python=None)
    before = engines_of(site, plan.name)
    exit_code, stdout, stderr = run("launch", str(plan), "--yes", "--json", state_root=state_root)
    assert exit_code == 0, stderr
    release = json.loads(stdout)
    assert release["phase"] == "probed"
    assert set(before) <= set(engines_of(site, plan.name)), "it goes on, nothing starts twice"

    exit_code, _, stderr = run("stop", "chat", "--yes", state_root=state_root)
    assert exit_code == 0, stderr
    assert engines_of(site, plan.name) == []
    assert journal.state(site.layout, shell=site.shell).release(plan.name).phase == Phase.STOPPED
    assert not list(state_root.rglob("*.sock"))
