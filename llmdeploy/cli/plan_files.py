"""All files of a plan's folder: what plan makes, and the gateway's as of a first release."""

from collections.abc import Sequence

from llmdeploy import plan as planning
from llmdeploy.edge.local import LocalShell
from llmdeploy.estimate.calibration import Forecast
from llmdeploy.gateway.change import state_for, with_release, with_weights
from llmdeploy.gateway.render import render
from llmdeploy.gateway.state import GatewayRelease, KeyRules
from llmdeploy.plan.document import Plan
from llmdeploy.release import stage
from llmdeploy.release.layout import ServiceLayout

FIRST_BLOCK = 0
"""Ports of the rendered gateway files: those of the first block; launch takes a free one."""


def plan_files(plan: Plan) -> dict[str, str]:
    """File name -> text: plan.yaml, launch/HOST/REPLICA.txt, gateway/*; the same plan gives the
    same bytes. The gateway has no keys yet and sends everything to this release. A cluster's plan
    has no gateway files: this release starts none of its endpoints."""
    if plan.cluster is not None:
        return planning.files(plan)
    layout = ServiceLayout(root=f"{plan.state_root}/{plan.service}")
    release = GatewayRelease(
        id=plan.id,
        endpoints=stage.endpoints(plan, port_block=FIRST_BLOCK),
        max_concurrency=plan.promises.max_concurrency,
    )
    dark = with_release(state_for(plan, keys=KeyRules(public_keys=())), release)
    gateway = render(with_weights(dark, {plan.id: 1.0}), layout)
    return planning.files(plan) | {f"gateway/{name}": text for name, text in gateway.items()}


def write(made: Plan, out: str, *, records: Sequence[Forecast] = ()) -> tuple[str, bool]:
    """Writes the plan's files and its report.html, which shows these records too.

    Gives the folder, and whether any file of it changed; plan.yaml comes last, so that a folder
    with it is whole.
    """
    from llmdeploy.plan.curves import curves  # with estimates: 0.1 s to import
    from llmdeploy.plan.report_html import render

    shell, folder = LocalShell(), f"{out}/{made.service}/{made.id}"
    files = plan_files(made) | {"report.html": render(made, curves(made), records=records)}
    changed = [name for name in files if shell.read(f"{folder}/{name}") != files[name].encode()]
    for name in sorted(changed, key=lambda name: name == "plan.yaml"):
        shell.write(f"{folder}/{name}", files[name].encode())
    return folder, bool(changed)
