"""What must be true before a release may start: each refusal names place and both values."""

from llmdeploy import store
from llmdeploy.edge import Shell
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.plan.document import Plan
from llmdeploy.release import ports, supervise
from llmdeploy.release.memory import available_bytes
from llmdeploy.release.site import Site
from llmdeploy.store import Model
from llmdeploy.units import show_bytes

MEMORY_FIGURE = "memory_needed"
"""The plan's figure of all bytes that one release takes."""
EVIDENCE_BYTES = 64 * 2**20
"""Room for a release's evidence and decision records, far above what they take."""


def needed_memory_bytes(plan: Plan) -> int:
    """Bytes that the plan says all replicas of a release take; Refused where it does not say."""
    figure = next((f for f in plan.figures if f.name == MEMORY_FIGURE), None)
    if figure is None:
        raise Refused(
            f"plan {plan.id}: has no figure {MEMORY_FIGURE}, needed it to check for room",
            fix=f"make the plan again: llmdeploy plan (service {plan.service})",
        )
    return round(figure.value)


def needed_disk_bytes(plan: Plan) -> int:
    """Bytes that a release's logs and evidence can come to."""
    logs_bytes = supervise.LOG_LIMIT_BYTES * (1 + supervise.LOG_BACKUPS)
    return len(plan.replicas) * logs_bytes + EVIDENCE_BYTES


def model_of(plan: Plan, *, shell: Shell) -> Model:
    """The plan's model in the host's store, whole; Refused where it is another or damaged."""
    folder = f"{store.absolute(plan.model_store, shell=shell)}/{plan.model.id}"
    model = store.load(folder, shell)
    if model.manifest.digest != plan.model.manifest_sha256:
        raise Refused(
            f"{folder}: found a model with digest {model.manifest.digest[:12]}, needed the "
            f"planned one with {plan.model.manifest_sha256[:12]}",
            fix="plan again for the model that is there, or put the planned one back",
        )
    bad = store.broken(store.verify(model, full=False, shell=shell))
    if bad is not None:
        raise Refused(
            f"{folder}/{bad.subject}: found {bad.found}, needed {bad.needed}", fix=bad.fix
        )
    return model


def check_memory(plan: Plan, *, freed_bytes: int, shell: Shell) -> None:
    """Refused unless the host has the memory; `freed_bytes` will be free before the start.

    Of a card's memory the engine itself makes sure, before it loads anything; so does each rank
    of a cluster's plan.
    """
    if plan.cluster is not None or any(replica.serve.device != "cpu" for replica in plan.replicas):
        return
    needed_bytes, there_bytes = needed_memory_bytes(plan), available_bytes(shell=shell)
    if there_bytes is None:
        raise Refused(
            f"/proc/meminfo: does not say what is available, needed {show_bytes(needed_bytes)}",
            fix="run llmdeploy preflight to see what the host can tell",
        )
    if there_bytes + freed_bytes < needed_bytes:
        freed = f" (with {show_bytes(freed_bytes)} freed before)" if freed_bytes else ""
        raise Refused(
            f"{plan.service}: {show_bytes(there_bytes + freed_bytes)} of memory are available"
            f"{freed}, needed {show_bytes(needed_bytes)} for release {plan.id}",
            fix="stop other programs (ps aux --sort=-rss) or plan with less: engine.max_model_len, "
            "engine.max_num_seqs or model.quantization in service.yaml",
        )


def check_disk(plan: Plan, site: Site) -> None:
    """Refused unless the state's disk has room for logs and evidence."""
    needed_bytes = needed_disk_bytes(plan)
    free_bytes = _free_bytes(site.state_root, shell=site.shell)
    if free_bytes < needed_bytes:
        raise Refused(
            f"{site.state_root}: its disk has {show_bytes(free_bytes)} free, needed "
            f"{show_bytes(needed_bytes)} for logs and evidence",
            fix=f"free space there (du -sh {site.state_root}/*) or move state_root in cluster.yaml",
        )


def check_gateway_port(plan: Plan, site: Site) -> None:
    """Refused when a stranger holds the port that the service's gateway listens on."""
    if site.supervisor.state(supervise.GATEWAY).running:
        return
    who = ports.holder(plan.gateway.port, shell=site.shell)
    if who is not None:
        raise Refused(
            f"gateway port {plan.gateway.port}: {who} listens there, needed it free",
            fix="stop that process, or choose another gateway.port in service.yaml and plan again",
        )


def _free_bytes(folder: str, *, shell: Shell) -> int:
    """Free bytes of the disk that holds `folder`, or would hold it once made."""
    nearest = 'd=$1; until [ -d "$d" ]; do d=$(dirname "$d"); done; df -Pk "$d"'
    done = shell.run(("sh", "-c", nearest, "sh", folder), timeout_s=20)
    fields = done.stdout.strip().splitlines()[-1:]
    try:
        return int(fields[0].split()[3]) * 1024
    except (IndexError, ValueError) as error:
        raise Unreachable(
            f"{folder}: `df` said {done.stdout.strip()!r} {done.stderr.strip()!r}",
            fix=f"run df -Pk {folder} by hand",
        ) from error
