"""Checks whether cards fit: what engine and weights need of them, and other vendors' health."""

import re

from llmdeploy.facts.check import Check, Outcome, Question, by_need, passed, skipped, warned
from llmdeploy.facts.checks.words import each, events, listed, states
from llmdeploy.facts.device import Accelerator
from llmdeploy.facts.finding import Remedy
from llmdeploy.units import show_bytes

LEAST_CAPABILITY = {
    "awq": 7.5, "gptq": 6.0, "fp8": 7.5, "int8": 7.5, "nf4": 5.0, "mxfp4": 8.0, "nvfp4": 7.5,
}  # fmt: skip
"""Compute capability that a format's kernels need. Source: vLLM 0.33 `get_min_capability` of each
method, bitsandbytes 0.50 README; fp8 below 8.9 keeps activations in 16 bits."""
BFLOAT16_CAPABILITY = 8.0
"""Source: CUDA programming guide 12, table of data types."""
HEALTHY = frozenset({"OK", "Available", "Good", "Inited"})
"""Words of npu-smi, mx-smi and cnmon for a card that works."""


def architecture(question: Question) -> Outcome:
    needed = "torch with kernels for these cards"
    cards = question.cards_of("nvidia")
    if not cards or not question.torch_uses_cards:
        return skipped("torch uses no NVIDIA card", needed)
    built = question.facts.torch_architectures
    if not built:
        return question.unknown("torch_architectures", needed)
    bad = [c for c in cards if c.compute_capability and not _covered(c.compute_capability, built)]
    if not bad:
        return passed(", ".join(built), needed)
    found = f"{bad[0].name} is {bad[0].compute_capability}, torch has {', '.join(built)}"
    return by_need(question, found, needed, fix="install torch built for this card's generation")


def _covered(capability: str, built: tuple[str, ...]) -> bool:
    """Kernels run on the same major and a minor not above; PTX is compiled for what is newer."""
    major, minor = (int(part) for part in capability.split("."))
    for name in built:
        kind, _, digits = name.partition("_")
        number = "".join(filter(str.isdigit, digits))
        if len(number) < 2:
            continue
        own, part = int(number[:-1]), int(number[-1])
        if kind == "sm" and own == major and part <= minor:
            return True
        if kind == "compute" and (own, part) <= (major, minor):
            return True
    return False


def quantisation(question: Question) -> Outcome:
    wanted = question.weights
    needed = f"cards with kernels for {wanted} weights"
    least = LEAST_CAPABILITY.get(re.split("[-_ ]", wanted)[0])  # `fp8-block`, `gptq-int4`
    cards = _capable(question)
    if least is None or not question.uses_cards or not cards:
        return skipped("no quantised weights on NVIDIA cards", needed)
    bad = [c for c in cards if float(c.compute_capability or 0) < least]
    if not bad:
        return passed(f"compute capability {cards[0].compute_capability}", f"{needed}: {least}")
    found = f"card {bad[0].index}: compute capability {bad[0].compute_capability}, not {least}"
    fix = "set model.quantization to gptq, nf4 or none"
    return by_need(
        question, found, needed, fix=f"{fix} and plan again" if question.planned else fix
    )


def bfloat16(question: Question) -> Outcome:
    needed = f"bf16 on the cards (compute capability {BFLOAT16_CAPABILITY:g})"
    cards = _capable(question)
    if not cards or not question.uses_cards:
        return skipped("the service uses no NVIDIA card", needed)
    bad = [c for c in cards if float(c.compute_capability or 0) < BFLOAT16_CAPABILITY]
    if not bad:
        return passed(f"compute capability {cards[0].compute_capability}", needed)
    found = f"card {bad[0].index}: compute capability {bad[0].compute_capability}"
    fix = "set model.dtype to float32, or serve in float16 and check answers for overflow"
    return warned(found, needed, fix=fix)


def _capable(question: Question) -> tuple[Accelerator, ...]:
    return tuple(card for card in question.cards_of("nvidia") if card.compute_capability)


def amd_health(question: Question) -> Outcome:
    needed = "no reset, hang or memory fault of an AMD card in the last day"
    if not question.cards_of("amd"):
        return skipped("no AMD card answers", needed)
    found = events(question, needed, "amdgpu")
    if isinstance(found, Outcome):
        return found
    if not found:
        return passed("none", needed)
    fix = "rocm-smi --gpureset -d INDEX with nothing on it, or reboot"
    return by_need(question, found[-1].text, needed, fix=fix)


def amd_partition(question: Question) -> Outcome:
    needed = "whole AMD cards: SPX and NPS1"
    found = states(question, needed, "amd")
    if isinstance(found, Outcome):
        return found
    bad = each(
        found,
        lambda s: s.partition not in (None, "SPX") or s.memory_partition not in (None, "NPS1"),
        lambda s: f"{s.partition or '?'}/{s.memory_partition or '?'}",
    )
    if bad:
        fix = "amd-smi set --compute-partition SPX --memory-partition NPS1, or plan for the parts"
        return warned(bad, needed, fix=fix)
    return passed("whole", needed)


def amd_target(question: Question) -> Outcome:
    needed = "torch with kernels for the AMD cards' architecture"
    found = states(question, needed, "amd")
    if isinstance(found, Outcome):
        return found
    built = question.facts.torch_architectures
    if built is None and question.torch_uses_cards:
        return question.unknown("torch_architectures", needed)
    if not question.torch_uses_cards or not built:
        return skipped("torch uses no AMD card", needed)
    targets = {s.architecture for s in found if s.architecture}
    missing = sorted(t for t in targets if t not in {name.partition(":")[0] for name in built})
    if missing:
        fix = "install torch built for this architecture (HSA_OVERRIDE_GFX_VERSION is for tests)"
        said = f"{', '.join(missing)}, torch has {', '.join(built)}"
        return by_need(question, said, needed, fix=fix)
    return passed(", ".join(sorted(targets)) or "not told", needed)


def npu_health(question: Question) -> Outcome:
    needed = "Ascend chips with health OK"
    found = states(question, needed, "ascend")
    if isinstance(found, Outcome):
        return found
    bad = each(found, lambda s: s.health != "OK", lambda s: s.health or "no health told")
    if bad:
        fix = "npu-smi info -t health -i NPU; npu-smi set -t reset -i NPU -c CHIP, or reboot"
        return by_need(question, bad, needed, fix=fix)
    return passed(f"{len(found)} OK", needed)


def vendor_health(question: Question) -> Outcome:
    needed = "cards that their vendor's tool calls healthy"
    found = states(question, needed, "metax", "cambricon", "moore-threads", "iluvatar", "kunlun",
                   "intel", "hygon")  # fmt: skip
    if isinstance(found, Outcome):
        return found
    bad = each(found, lambda s: s.health and s.health not in HEALTHY, lambda s: str(s.health))
    if bad:
        return by_need(question, bad, needed, fix="reset the card with its tool, or reboot")
    return passed(f"{len(found)} cards", needed)


def declared(question: Question) -> Outcome:
    needed = "the devices that cluster.yaml declares"
    wanted = sum(devices.count for devices in question.host.devices)
    cards = question.facts.accelerators
    if not wanted:
        return skipped("none are declared", needed)
    if cards is None:
        return question.unknown("accelerators", needed)
    words = ", ".join(f"{d.count} x {d.device}" for d in question.host.devices)
    found = f"{len(cards)} answer"
    if not cards and question.facts.accelerator_errors:
        return skipped("no card answers at all: see gpu.smi.responsive", needed)
    if len(cards) < wanted == len(question.facts.pci_devices or ()):
        return skipped("they are on the bus: see gpu.visible.count", needed)
    if len(cards) == wanted:
        return passed(found, f"{needed}: {words}")
    fix = "correct hosts/devices in cluster.yaml, or see why a card is missing"
    return by_need(question, found, f"{needed}: {words}", fix=fix)


def planned_memory(question: Question) -> Outcome:
    needed = "free memory on each card for the plan"
    plan, cards = question.planned, question.facts.accelerators
    if plan is None or not plan.cards or plan.card_memory_bytes is None:
        return skipped("no plan uses cards here", needed)
    if cards is None:
        return question.unknown("accelerators", needed)
    needed = f"{plan.cards} cards with {show_bytes(plan.card_memory_bytes)} free"
    if any(card.memory_free_bytes is None for card in cards):
        return question.unknown("accelerators", needed)
    free = sorted((c.memory_free_bytes or 0 for c in cards), reverse=True)
    roomy = sum(size >= plan.card_memory_bytes for size in free)
    shown = listed([show_bytes(size) for size in free])
    if roomy >= plan.cards:
        return passed(f"{roomy} of {len(cards)} cards have it", needed)
    fix = "stop what holds the cards, or plan again with the facts of now"
    return by_need(question, f"{roomy} have it; free are {shown or 'none'}", needed, fix=fix)


_STATE = ("accelerators", "card_states")
CHECKS = (
    Check("gpu.arch.supported", "gpu", "kernels for the cards", architecture,
          ("accelerators", "torch_architectures", "torch_cuda_devices")),
    Check("gpu.quant.capability", "gpu", "kernels for the weights", quantisation,
          ("accelerators",)),
    Check("gpu.bf16", "gpu", "native bf16", bfloat16, ("accelerators",)),
    Check("gpu.amd.health", "gpu", "AMD cards without faults", amd_health,
          ("accelerators", "kernel_events"), remedy=Remedy.REBOOT),
    Check("gpu.amd.partition", "gpu", "whole AMD cards", amd_partition, _STATE),
    Check("gpu.amd.gfx", "gpu", "kernels for AMD cards", amd_target,
          (*_STATE, "torch_architectures", "torch_cuda_devices")),
    Check("gpu.npu.health", "gpu", "healthy Ascend chips", npu_health, _STATE,
          remedy=Remedy.REBOOT),
    Check("gpu.vendor.health", "gpu", "healthy cards", vendor_health, _STATE,
          remedy=Remedy.REBOOT),
    Check("gpu.declared", "gpu", "the declared devices", declared,
          ("accelerators", "accelerator_errors", "pci_devices")),
    Check("gpu.plan.memory", "gpu", "room for the plan", planned_memory, ("accelerators",)),
)  # fmt: skip
