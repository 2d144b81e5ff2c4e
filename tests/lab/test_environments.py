"""`llmdeploy environments` on two booted hosts without an index, from wheels that are sent once."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.onhost.wheel import write_wheel

from .bed import Bed
from .cluster_story import ROOT
from .needs import need_nspawn

CLUSTER = """
environment_store: ~/engines
environments: [{name: cuda, requirements: [engine==1.0], wheels: wheels}]
hosts:
  - {name: a, address: node1, data_address: %s, environment: cuda, python: %s}
  - {name: b, address: node2, data_address: %s, environment: cuda, python: %s}
"""


@pytest.mark.end_to_end
def test_wheels_leave_once_and_both_hosts_have_the_engine(tmp_path: pathlib.Path) -> None:
    need_nspawn()
    shared = (sys.prefix, sys.base_prefix, str(ROOT))
    with Bed(tmp_path / "b", size=2, name="ldv", prefix="10.88", disk="500m", shared=shared) as bed:
        write_wheel(bed.folder / "wheels", "engine", "1.0", needs="kernels")
        write_wheel(bed.folder / "wheels", "kernels", "2.1")
        first, second = (plug.address for plug in bed.network.plugs)
        file = bed.folder / "cluster.yaml"
        file.write_text(CLUSTER % (first, sys.executable, second, sys.executable))

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            argv = [sys.executable, "-m", "llmdeploy", "environments", words[0], str(file)]
            return subprocess.run(
                [*argv, *words[1:]], capture_output=True, text=True, check=False,
                env={**os.environ, "HOME": str(bed.folder)},
            )  # fmt: skip

        made = run("make", "--yes", "--json")
        assert made.returncode == 0, made.stderr
        assert "copied to 2 host(s)" in made.stderr
        shown = json.loads(made.stdout)
        assert [(one["host"], one["packages"]["kernels"]) for one in shown] == [
            ("a", "2.1"), ("b", "2.1"),
        ]  # fmt: skip
        assert run("list", "--json").stdout == made.stdout
        removed = run("remove", "--yes")
        assert removed.stdout.count(": removed") == 2, removed.stderr
        listed = run("list")
        assert listed.stderr.count("not made") == 2
