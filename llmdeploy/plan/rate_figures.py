"""The rates that a part's speed stands on: from tests, data sheets or the catalog's links."""

from collections.abc import Iterator

from llmdeploy.catalog import devices, links
from llmdeploy.estimate.calibration import GEMM_RATIO, READ_RATIO
from llmdeploy.model import ModelShape
from llmdeploy.plan.document import Figure, Origin
from llmdeploy.plan.figure import predicted, shown
from llmdeploy.plan.rank import Part
from llmdeploy.units import show_ratio, show_seconds

ACTIVATION_BYTES = 2
"""Of an element that is summed. Source: engines compute in bf16 or fp16 between products."""


def rate_figures(part: Part, shape: ModelShape) -> Iterator[Figure]:
    """Compute and memory of a device, one sum over a tensor group, reading the weights."""
    pool = part.sized.proposal.pool
    spec, rates = pool.device, pool.rates
    flops = rates.matmul_flops_per_s if rates else None
    read = rates.memory_read_bytes_per_s if rates else None
    yield _rate("matmul_rate", spec.bf16_flops_per_s, "FLOP/s", spec.name, (flops, GEMM_RATIO))
    yield _rate("memory_read_rate", spec.memory_bytes_per_s, "bytes/s", spec.name,
                (read, READ_RATIO))  # fmt: skip
    if part.sized.proposal.tensor_parallel > 1:
        yield _all_reduce(part, shape)
    yield from _load_time(part)


def measured_words(part: Part) -> Iterator[str]:
    """What tests measured of this part's devices, beside what the catalog says."""
    pool = part.sized.proposal.pool
    rates, table = pool.rates, devices.find(pool.device.id)
    if rates is None:
        return
    said = []
    for name, unit, value, sheet in (
        ("bf16 product", "TFLOP/s", rates.matmul_flops_per_s, table.bf16_flops_per_s),
        ("memory read", "TB/s", rates.memory_read_bytes_per_s, table.memory_bytes_per_s),
    ):
        if value is not None:
            said.append(
                f"{name} {shown(value / 1e12)} {unit} ({show_ratio(value / sheet)} of the data"
                " sheet)"
            )
    tp, curve = part.sized.proposal.tensor_parallel, part.sized.case.all_reduce
    if curve:
        size, duration_s = curve[-1]
        usual_s = links.all_reduce_s(part.sized.proposal.link, tp, size)
        scaled = "" if rates.all_reduce_devices == tp else (
            f", scaled from {rates.all_reduce_devices}"
        )  # fmt: skip
        said.append(
            f"sum of {size} bytes over {tp} devices {show_seconds(duration_s)}{scaled}"
            f" (catalog: {show_seconds(usual_s)})"
        )
    if rates.disk_read_bytes_per_s is not None:
        said.append(f"disk read {shown(rates.disk_read_bytes_per_s / 1e9)} GB/s")
    if said:
        yield f"Measured on these hosts, the slowest of {pool.name}: {'; '.join(said)}."


def _rate(
    name: str, value: float, unit: str, device: str, tested: tuple[float | None, float]
) -> Figure:
    rate, reached = tested
    if rate is None:
        return predicted(name, value, unit, f"data sheet of {device}", origin=Origin.TABLE)
    words = (
        f"measured {shown(rate)} / {reached:g}, the share of a data sheet that a sound device"
        " reaches"
    )
    return predicted(name, value, unit, words, origin=Origin.MEASURED)


def _all_reduce(part: Part, shape: ModelShape) -> Figure:
    """Seconds to sum one decoding step's activations of a saturated replica, once."""
    proposal, case = part.sized.proposal, part.sized.case
    tp, link, batch = proposal.tensor_parallel, proposal.link, part.sized.batch
    size = batch * shape.hidden_size * ACTIVATION_BYTES
    own = tuple(links.Sample(size_bytes=size, duration_s=s) for size, s in case.all_reduce)
    words = (
        f"sum of requests x hidden size x 2 B over {tp} devices:"
        f" {batch} x {shape.hidden_size} x {ACTIVATION_BYTES} = {size} bytes,"
    )
    assumed = Origin.ASSUMED if link.source.startswith("assumed") else Origin.TABLE
    return predicted(
        "all_reduce",
        links.all_reduce_s(link, tp, size, measured=own),
        "s",
        f"{words} on the measured curve" if own else f"{words} on {link.id} of the catalog",
        origin=Origin.MEASURED if own else assumed,
    )


def _load_time(part: Part) -> Iterator[Figure]:
    """Seconds to read one host's weights from its disk, where that was measured."""
    proposal, pool = part.sized.proposal, part.sized.proposal.pool
    rate = pool.rates.disk_read_bytes_per_s if pool.rates else None
    if rate is None:
        return
    held = round(part.sized.memory.weights_bytes.value) * proposal.devices // proposal.machines
    yield predicted(
        "load_time", held / rate, "s",
        f"weights on a host of a replica / measured disk read: {held} / {shown(rate)}",
        origin=Origin.MEASURED,
    )  # fmt: skip
