"""A cluster plan's decisions and warnings, in words."""

from collections import Counter
from collections.abc import Iterator

from llmdeploy.inventory import Inventory
from llmdeploy.plan.cluster import Cluster
from llmdeploy.plan.figure import shown
from llmdeploy.plan.place import place
from llmdeploy.plan.rank import Option, Part, pareto
from llmdeploy.plan.rate_figures import measured_words
from llmdeploy.plan.search import Found
from llmdeploy.plan.serving import NEWEST, Wanted
from llmdeploy.service import Service
from llmdeploy.units import show_bytes, show_ratio

BITS = {1: 8, 2: 4}
GROUP_PORTS = 3
"""That the head of a replica listens on. Source: release/groups.py: HTTP, rendezvous, group."""


def notes(
    option: Option,
    found: Found,
    cluster: Cluster,
    service: Service,
    *,
    engine: Wanted,
    inventory: Inventory,
) -> tuple[str, ...]:
    """The decisions that a reader would ask about."""
    written = _notes(option, found, cluster, service, engine)
    return (*written, *_launch(option, inventory))


def _notes(
    option: Option, found: Found, cluster: Cluster, service: Service, engine: Wanted
) -> Iterator[str]:
    for part in option.parts:
        yield _why(part, found)
    for part in option.parts:
        yield from measured_words(part)
    yield from _weights(option, found)
    yield _spare(option)
    free = 1 - service.engine.memory_ratio
    yield f"{free:.0%} of each device's memory stays free."
    if len(option.parts) > 1:
        yield (
            "No kind of device carries the peak alone: requests are shared by what each part"
            " sustains."
        )
    yield f"Old and new release: {cluster.coresidency.kind}: {cluster.coresidency.words}."
    yield _admission(option, service)
    yield from _unsure(cluster)
    yield from _lengths(service)
    if any(part.sized.proposal.pool.device.vendor == "cpu" for part in option.parts):
        yield (
            "A declared processor's cores are not known: for its workers and threads plan with"
            " what the host says (llmdeploy plan without --inventory)."
        )
    planned = any(p.sized.proposal.engine.name == engine.engine.name for p in option.parts)
    if planned and engine.version and service.engine.version is None:
        yield (
            f"Planned for {engine.engine.name} {engine.version}, the newest version whose flags"
            " are known; set engine.version to what is installed."
        )
    if planned and engine.newer:
        yield (
            f"{engine.engine.name} {engine.version} is newer than {NEWEST[engine.engine.name]}, the"
            " newest whose flags and memory are known: it is planned by that one's, with wider"
            " intervals."
        )
    for other in cluster.alternatives:
        if other.fits:
            yield f"On {other.engine} the same layout: {other.words}."
        else:
            yield f"On {other.engine} the same layout does not run: {other.words}."
    rules = Counter(rejected.rule for rejected in cluster.rejected)
    counts = ", ".join(f"{count} by {rule}" for rule, count in rules.most_common())
    yield f"{found.looked_at} layouts were looked at; rejected: {counts or 'none'}."


def _launch(option: Option, inventory: Inventory) -> Iterator[str]:
    """How it is started, and what keeps it from that."""
    engines = {part.sized.proposal.engine.name for part in option.parts}
    if "embedded" in engines:
        yield (
            "This plan can be read, compared and started by hand from its launch files; llmdeploy"
            " launch starts the embedded engine on one host alone, planned without --inventory."
        )
        return
    heads = Counter(placed.members[0].host for placed in place(option))
    host, most = heads.most_common(1)[0]
    needed, size = most * GROUP_PORTS, inventory.ports.block_size
    if needed > size:
        yield (
            f"Before launch set ports.block_size to {needed} or more in cluster.yaml and plan"
            f" again: {host} is the head of {most} replicas with {GROUP_PORTS} ports each, a block"
            f" has {size}."
        )


def _why(part: Part, found: Found) -> str:
    """Why this many devices a replica."""
    sized = part.sized
    proposal, memory = sized.proposal, sized.memory
    held = (
        f"weights take {show_bytes(memory.weights_bytes.value)} of the"
        f" {show_bytes(proposal.pool.usable_bytes)} of each {proposal.pool.name}"
    )
    if proposal.devices == 1:
        return f"One device is enough for a replica: {held}, and leave room for" + (
            f" {sized.requests_in_kv_cache} requests of mean length; one replica gives"
            f" {shown(sized.tokens_per_s)} output tokens/s."
        )
    cut = []
    if proposal.tensor_parallel > 1:
        cut.append(f"tensors over {proposal.tensor_parallel} devices on {proposal.link.id}")
    if proposal.pipeline_parallel > 1:
        over = f" over {proposal.machines} hosts" if proposal.machines > 1 else " within a host"
        cut.append(f"layers in {proposal.pipeline_parallel} stages{over}")
    if proposal.data_parallel > 1:
        cut.append(f"attention copied {proposal.data_parallel} times, experts spread")
    elif proposal.expert_parallel:
        cut.append("experts spread rather than cut")
    smaller = _smaller(part, found)
    return f"A replica takes {proposal.devices} devices ({', '.join(cut)}): {held}{smaller}."


def _smaller(part: Part, found: Found) -> str:
    """Why no layout of fewer devices with the same weights."""
    proposal = part.sized.proposal
    if proposal.tensor_parallel == 1:
        return ""
    start = f"{proposal.pool.name} {proposal.weights.name}"
    for rejected in found.rejected:
        if rejected.layout == f"{start} tp{proposal.tensor_parallel // 2}":
            return f"; on half as many: {rejected.broken.words}"
    return ""


def _weights(option: Option, found: Found) -> Iterator[str]:
    for part in option.parts:
        weights = part.sized.proposal.weights
        if weights.needs_checkpoint:
            yield (
                f"Weights in {BITS[weights.loss]} bits ({weights.name}) are not what the model was"
                " published in: put a checkpoint in that format into the store, and compare its"
                " answers."
            )
        elif weights.convert != "none":
            yield (
                f"The engine converts weights to {weights.name} while it loads them: compare its"
                " answers with the unquantised model's."
            )
    cheaper = next(
        (o for o in pareto(found.options) if o.loss > option.loss and o.cost < option.cost), None
    )
    if cheaper is not None:
        yield (
            f"Fewer bits would take {cheaper.devices} devices instead of {option.devices}:"
            f" {cheaper.name}; weights stay as published because that fits."
        )


def _spare(option: Option) -> str:
    if option.spares:
        return (
            f"{option.spares} replica is a spare: the peak is carried when any one replica is lost."
        )
    if len(option.parts) == 1 and option.parts[0].replicas == 1:
        return "There is no spare replica: the loss of one device stops the service."
    return "There is no room for a spare replica: after a loss the peak breaks the objectives."


def _admission(option: Option, service: Service) -> str:
    """What is let in, and how much of a queue the promised time to the first token bears."""
    batch = sum(part.sized.batch * part.replicas for part in option.parts)
    sustained = sum(part.peak.sustained_rate_per_s for part in option.parts)
    waiting = max(part.peak.waiting_ratio for part in option.parts)
    bearable = max(0, int(service.objectives.ttft_p95_s * sustained))
    return (
        f"Admission: {batch} requests are decoded together, {service.gateway.max_queue} wait at the"
        f" gateway, more are answered 429; {show_ratio(waiting)} of the requests wait for a place"
        f" at the peak, and a queue of {bearable} is what {service.objectives.ttft_p95_s:g} s to"
        " the first token bear. error_ratio is not predicted."
    )


def _unsure(cluster: Cluster) -> Iterator[str]:
    for one in cluster.expected:
        if one.kept and not one.sure:
            words = show_ratio if one.unit == "ratio" else shown
            yield (
                f"{one.name} is predicted at {words(one.predicted)}, promised"
                f" {words(one.promised)}; the 90 % interval ends at {words(one.high)}"
                f" ({one.method}): measure before relying on it."
            )


def _lengths(service: Service) -> Iterator[str]:
    load, longest = service.workload, service.engine.max_model_len
    tokens = load.input_tokens.p95 + load.output_tokens.p95
    if tokens > longest:
        yield (
            f"p95 input and output together are {tokens:g} tokens, max_model_len is {longest}:"
            " such requests are refused or cut."
        )
