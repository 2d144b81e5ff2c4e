"""Four booted hosts with eight cards each and everything installed: preflight finds them fit."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from .bed import Bed
from .build import Built, ini
from .needs import need_nspawn

ROOT = pathlib.Path(__file__).parents[2]
HOSTS = 4


@pytest.mark.end_to_end
def test_clean_hosts_are_fit(
    tmp_path: pathlib.Path, built: Built, model_store: pathlib.Path
) -> None:
    need_nspawn()
    shared = (sys.prefix, sys.base_prefix, str(ROOT), str(model_store))
    with Bed(
        tmp_path / "b", size=HOSTS, name="ldc", prefix="10.82", disk="8g", shared=shared
    ) as bed:
        for machine in bed.machines:
            machine.give_cards(built, ini("rtx4090x8"))
        (bed.folder / "cluster.yaml").write_text(
            f"hosts: [{{name: node, count: {HOSTS}, address: 'node{{number}}', "
            f"python: {sys.executable}}}]\nmodel_store: {model_store}\n"
        )
        (bed.folder / "service.yaml").write_text(
            "cluster: cluster.yaml\nmodel: {id: smollm2-135m-instruct}\n"
        )
        begun_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "llmdeploy", "preflight", "service.yaml", "--quick", "--json"],
            cwd=bed.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": str(bed.folder), "LLMDEPLOY_STATE_ROOT": ""},
        )
        print(f"{HOSTS} hosts asked with imports in {time.monotonic() - begun_s:.1f} s")
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    bad = [
        f"{f['check']} on {f['subject']}: {f['status']}: {f['found']}"
        for f in report["findings"]
        if f["status"] == "FAIL" or f["check"] in report["blocked_by"]
    ]
    assert not bad, "\n".join(bad)
    assert done.returncode == 0, done.stderr
