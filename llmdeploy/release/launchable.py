"""Whether this release of llmdeploy can start what a plan wants."""

from llmdeploy.backends.progress import LINES
from llmdeploy.errors import InputError, Refused
from llmdeploy.plan.document import Plan


def check_launchable(plan: Plan, *, inventory: bool) -> None:
    """Refused where this release cannot start the engine on a cluster; InputError where the
    cluster's inventory is missing, or given for a plan of one host."""
    if plan.cluster is None:
        if inventory:
            raise InputError(
                f"plan {plan.id}: --inventory: found one, needed none: it is for one host",
                fix="leave out --inventory, or plan with it",
            )
        return
    engine, hosts = plan.replicas[0].serve.engine, {replica.host for replica in plan.replicas}
    if engine not in LINES:
        raise Refused(
            f"plan {plan.id}: {engine} on {len(hosts)} host(s) of a cluster; this release launches"
            " embedded on one host alone, the one llmdeploy runs on",
            fix="set engine.kind to vllm or sglang and plan again, or plan without --inventory",
        )
    if not inventory:
        raise InputError(
            f"plan {plan.id}: found no inventory, needed the one it was planned with: it says how"
            f" {', '.join(sorted(hosts)[:4])} are reached",
            fix=f"llmdeploy launch plans/{plan.service}/{plan.id} --inventory cluster.yaml",
        )
