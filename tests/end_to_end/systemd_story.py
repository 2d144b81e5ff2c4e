"""A launch under systemd's user manager, from first start to stop; prints what it saw as JSON.

python -m tests.end_to_end.systemd_story FOLDER    (within systemd_bench.sh, in the repository)
"""

import dataclasses
import json
import os
import pathlib
import signal
import sys

from llmdeploy.cli.starting import bring_up
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.release import prepare, stop, supervise
from llmdeploy.release.site import Site
from llmdeploy.release.systemd import UNITS, Systemd

from ..release.made import Bench
from .benches import engines, leftovers, site_of


def main(folder: pathlib.Path) -> None:
    bench = Bench(folder)
    shell = LocalShell()
    site = dataclasses.replace(
        site_of(bench), supervisor=Systemd(layout=site_of(bench).layout, shell=shell)
    )
    seen: dict[str, object] = {}
    try:
        tell(bench, site, seen)
    finally:
        stop.stop_service(purge=True, site=site)
    managers = ("/lib/systemd/systemd --user", "(sd-pam)")
    seen["left"] = [line for line in leftovers(bench) if not line.startswith(managers)]
    seen["units_left"] = [n for n in shell.entries(UNITS) if n.startswith("llmdeploy")]
    print(json.dumps(seen))


def tell(bench: Bench, site: Site, seen: dict[str, object]) -> None:
    """Launches, kills, launches what fails."""
    bench.behave(child=True)
    plan = bench.plan()
    release = bring_up(plan, site)
    name = supervise.engine_program(plan.id, "r1")
    first = site.supervisor.state(name)
    environment = pathlib.Path(f"/proc/{first.pid}/environ").read_text().split("\0")
    seen["phase"] = release.phase
    seen["programs"] = len(site.supervisor.list())
    seen["environment"] = sorted(entry.split("=")[0] for entry in environment if entry)
    seen["processes"] = len(engines(site, plan.id))
    os.kill(int(first.pid or 0), signal.SIGKILL)
    while not prepare.stands(release, site=site):
        site.clock.sleep(0.1)
    again = site.supervisor.state(name)
    seen["restarts"], seen["other_pid"] = again.restarts, again.pid != first.pid
    seen["processes_after_restart"] = len(engines(site, plan.id))
    bench.behave(fail_at="loaded", how="traceback", child=True)
    bad = bench.plan(notes=("bad",))
    try:
        bring_up(bad, site)
    except Refused as error:
        seen["refused"] = str(error)
    seen["left_of_the_failed"] = engines(site, bad.id)
    seen["still_stands"] = prepare.stands(release, site=site)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
