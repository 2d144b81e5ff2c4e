"""Checks whether accelerators are there: seen by torch, answering, free, of one driver."""

from llmdeploy.facts.check import Check, Outcome, Question, by_need, failed, passed, skipped, warned
from llmdeploy.facts.device import same_card
from llmdeploy.facts.finding import Remedy
from llmdeploy.units import show_bytes

ELSEWHERE = (None, "nouveau", "vfio-pci", "pci-stub")
"""Drivers under which a card answers no tool: other checks name these."""
FREE_RATIO = 0.9
"""Less free memory than this on a card means that someone else is on it."""


def device(question: Question) -> Outcome:
    wanted = question.service.engine.device
    cuda, cards = question.facts.torch_cuda_devices, question.facts.pci_devices
    needed = f"torch sees what engine.device {wanted} asks for"
    if wanted == "cpu":
        return passed("the CPU is always there", needed)
    if cuda is None or cards is None:
        return question.unknown("torch_cuda_devices" if cuda is None else "pci_devices", needed)
    found = f"{cuda} CUDA devices in torch, {len(cards)} accelerators on the PCI bus"
    if wanted == "cuda" and cuda == 0:
        return failed(
            found, needed, fix="set engine.device to cpu, or install torch for CUDA and the driver"
        )
    if cards and cuda == 0:
        fix = "set engine.device to cpu to say it is meant, or install torch for the accelerator"
        return warned(f"{found}: the engine would run on the CPU", needed, fix=fix)
    return passed(found, needed)


def cards_answer(question: Question) -> Outcome:
    facts, needed = question.facts, "the driver's tools answer without an error"
    if facts.accelerator_errors is None:
        return question.unknown("accelerator_errors", needed)
    errors = _of_the_tool(question, facts.accelerator_errors)
    if errors:
        fix = "see `dmesg | tail`; reset the card or reboot, or set engine.device to cpu"
        return by_need(question, errors[0], needed, fix=fix)
    if not question.has_accelerators:
        return skipped("no accelerator", needed)
    return passed(f"{len(facts.accelerators or ())} cards", needed)


def _of_the_tool(question: Question, errors: tuple[str, ...]) -> list[str]:
    """Errors of the tool as a whole; one card's own have checks of their own."""
    own = [e for e in errors if "device handle" in e or "infoROM" in e]
    if not any("device handle" in e for e in own) or not (
        question.facts.pci_devices or question.host.devices
    ):
        return [e for e in errors if "infoROM" not in e]
    return [e for e in errors if e not in own and "ended with exit code" not in e]


def cards_count(question: Question) -> Outcome:
    """Tools that give no address are taken at their count: one chip or more for each card."""
    facts, needed = question.facts, "every card on the bus answers"
    if facts.pci_devices is None or facts.accelerators is None:
        return question.unknown("pci_devices", needed)
    usable = [card for card in facts.pci_devices if card.driver not in ELSEWHERE]
    if not usable:
        return skipped("no card with a driver on the bus", needed)
    if not facts.accelerators and facts.accelerator_errors:
        return skipped("no card answers at all: see gpu.smi.responsive", needed)
    lost = []
    for vendor in sorted({card.vendor for card in usable}):
        on_bus = [card for card in usable if card.vendor == vendor]
        answering = question.cards_of(vendor)
        if any(card.pci_address is None for card in answering) and len(answering) >= len(on_bus):
            continue
        lost += [
            c.address for c in on_bus if not any(same_card(a.pci_address, (c,)) for a in answering)
        ]
    total = len(usable)
    found = f"{total - len(lost)} of {total} answer"
    if not lost:
        return passed(found, needed)
    fix = f"look for {lost[0]} in dmesg, reboot; or set engine.device to cpu"
    return by_need(question, f"{found}, not {', '.join(lost)}", needed, fix=fix)


def driver_match(question: Question) -> Outcome:
    facts, needed = question.facts, "the loaded kernel module and its library of one version"
    if facts.accelerators is None:
        return question.unknown("accelerators", needed)
    libraries = {c.driver_version for c in facts.accelerators or () if c.vendor == "nvidia"} - {
        None
    }
    if not libraries:
        return skipped("no NVIDIA card answers", needed)
    if facts.nvidia_module_version is None:
        return question.unknown("nvidia_module_version", needed)
    found = (
        f"module {facts.nvidia_module_version}, library {', '.join(sorted(map(str, libraries)))}"
    )
    if libraries == {facts.nvidia_module_version}:
        return passed(found, needed)
    return failed(found, needed, fix="reboot: the driver was updated while the old one was loaded")


def nouveau(question: Question) -> Outcome:
    needed = "NVIDIA cards not held by nouveau"
    cards = question.facts.pci_devices
    if cards is None:
        return question.unknown("pci_devices", needed)
    held = [card.address for card in cards if card.driver == "nouveau"]
    if not any(card.vendor == "nvidia" for card in cards):
        return skipped("no NVIDIA card on the bus", needed)
    if not held:
        return passed("none is", needed)
    fix = "blacklist nouveau in /etc/modprobe.d, update-initramfs -u, reboot"
    return by_need(question, f"{', '.join(held)} is", needed, fix=fix)


def card_errors(question: Question) -> Outcome:
    needed = "no uncorrected memory error on any card"
    cards = question.facts.accelerators
    if cards is None:
        return question.unknown("accelerators", needed)
    if not cards:
        return skipped("no card answers", needed)
    bad = [f"card {c.index}: {c.uncorrected_errors}" for c in cards if c.uncorrected_errors]
    if not bad:
        return passed(f"{len(cards)} cards", needed)
    return by_need(
        question, ", ".join(bad), needed, fix="nvidia-smi -r -i INDEX; replace it if they return"
    )


def card_memory(question: Question) -> Outcome:
    needed = "cards with nothing else on them"
    cards = question.facts.accelerators
    if cards is None:
        return question.unknown("accelerators", needed)
    if not cards or not question.on_cuda:
        return skipped("the engine uses no card", needed)
    for card in cards:
        if card.memory_total_bytes is None or card.memory_free_bytes is None:
            return question.unknown("accelerators", needed)
        if card.memory_free_bytes < FREE_RATIO * card.memory_total_bytes:
            shown = f"{show_bytes(card.memory_free_bytes)} of {show_bytes(card.memory_total_bytes)}"
            fix = "nvidia-smi shows who holds it: stop that, or expect less KV cache"
            return warned(f"card {card.index}: {shown} free", needed, fix=fix)
    return passed(f"{len(cards)} cards free", needed)


CHECKS = (
    Check(
        "gpu.device",
        "gpu",
        "the device that is asked for",
        device,
        ("torch_cuda_devices", "pci_devices"),
        gate=True,
    ),
    Check(
        "gpu.smi.responsive",
        "gpu",
        "drivers that answer",
        cards_answer,
        ("accelerator_errors", "pci_devices", "accelerators"),
        remedy=Remedy.REBOOT,
    ),
    Check(
        "gpu.visible.count",
        "gpu",
        "no card lost",
        cards_count,
        ("pci_devices", "accelerators", "accelerator_errors"),
        remedy=Remedy.HARDWARE,
    ),
    Check(
        "gpu.ecc.uncorrected",
        "gpu",
        "cards without memory errors",
        card_errors,
        ("accelerators",),
        remedy=Remedy.REBOOT,
    ),
    Check(
        "gpu.memory.free",
        "gpu",
        "cards without strangers",
        card_memory,
        ("accelerators", "torch_cuda_devices"),
    ),
    Check(
        "drv.nvml.match",
        "driver",
        "one driver version",
        driver_match,
        ("accelerators", "nvidia_module_version"),
        remedy=Remedy.REBOOT,
    ),
    Check(
        "drv.nouveau",
        "driver",
        "no nouveau on the cards",
        nouveau,
        ("pci_devices",),
        remedy=Remedy.REBOOT,
    ),
)
