"""Checks of drivers: bound, new enough, one version, its daemons, its files in /dev."""

from llmdeploy.facts.check import Check, Outcome, Question, by_need, passed, skipped, warned
from llmdeploy.facts.checks.words import events, listed
from llmdeploy.facts.device import PciDevice
from llmdeploy.facts.finding import Remedy

CUDA_DRIVERS = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
"""Oldest driver of a CUDA generation. Source: CUDA release notes 13.0, table 2."""
BLACKWELL = 10.0
"""From this compute capability on only the open kernel module works. Source: NVIDIA driver 570
README, chapter 44."""
NODES = {
    "nvidia": ("/dev/nvidiactl", "/dev/nvidia-uvm"),
    "amd": ("/dev/kfd",),
    "ascend": ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
}
"""Files that every program on such a card opens. Source: the vendors' container guides."""
FOR_DRIVER = "install the vendor's driver and reboot; `lspci -k -s ADDRESS` shows who has the card"


def bound(question: Question) -> Outcome:
    needed = "a kernel driver on every accelerator"
    cards = question.facts.pci_devices
    if cards is None:
        return question.unknown("pci_devices", needed)
    if not cards:
        return skipped("no accelerator on the bus", needed)
    bare = [f"{c.address} ({c.vendor} {c.device})" for c in cards if _without_driver(c)]
    if not bare:
        return passed(f"{len(cards)} accelerators", needed)
    return by_need(question, f"none on {listed(bare)}", needed, fix=FOR_DRIVER)


def _without_driver(card: PciDevice) -> bool:
    """A card given to a virtual machine has a driver of its own."""
    return card.driver is None or card.driver == "pci-stub"


def cuda_minimum(question: Question) -> Outcome:
    needed = "a driver that is new enough for torch's CUDA"
    cards, version = question.cards_of("nvidia"), question.facts.torch_cuda_version
    if not cards or not question.uses_cards:
        return skipped("the service uses no NVIDIA card", needed)
    if not question.facts.known("torch_cuda_version"):
        return question.unknown("torch_cuda_version", needed)
    least = CUDA_DRIVERS.get(int(version.split(".")[0])) if version else None
    driver = next((c.driver_version for c in cards if c.driver_version), None)
    if version is None or least is None or driver is None:
        return skipped("torch is built without CUDA", needed)
    needed = f"driver {least[0]}.{least[1]} or newer for CUDA {version}"
    if tuple(int(part) for part in driver.split(".")[:2]) >= least:
        return passed(f"driver {driver}", needed)
    fix = f"update the driver, or install torch for CUDA {_newest_for(driver)}"
    return by_need(question, f"driver {driver}", needed, fix=fix)


def _newest_for(driver: str) -> str:
    have = tuple(int(part) for part in driver.split(".")[:2])
    fitting = [str(major) for major, least in CUDA_DRIVERS.items() if have >= least]
    return fitting[-1] if fitting else "10"


def compat(question: Question) -> Outcome:
    needed = "the driver's own libcuda first on the loader's path"
    if not question.cards_of("nvidia"):
        return skipped("no NVIDIA card answers", needed)
    places = question.facts.cuda_compat
    if places is None:
        return question.unknown("cuda_compat", needed)
    if not places:
        return passed("no compatibility library", needed)
    fix = "take /usr/local/cuda*/compat out of it: consumer cards fail with that library"
    return warned(f"a compat folder in {listed(places)}", needed, fix=fix)


def pending_reboot(question: Question) -> Outcome:
    facts, needed = question.facts, "no kernel or driver that waits for a reboot"
    if facts.updates is None or facts.kernel is None:
        return question.unknown("updates" if facts.updates is None else "kernel", needed)
    newer = [k for k in facts.updates.kernels if _parts(k) > _parts(facts.kernel)]
    driver = facts.updates.driver_installed
    if facts.kernel in facts.updates.kernels and newer:
        found = f"kernel {newer[-1]} is installed, {facts.kernel} runs"
    elif driver and facts.nvidia_module_version and driver != facts.nvidia_module_version:
        found = f"driver {driver} is installed, {facts.nvidia_module_version} is loaded"
    elif facts.updates.reboot_required:
        found = "the distribution asks for one"
    else:
        return passed("none", needed)
    return warned(found, needed, fix="reboot in a window before the launch")


def _parts(release: str) -> tuple[int, ...]:
    digits = "".join(c if c.isdigit() else " " for c in release)
    return tuple(int(part) for part in digits.split())


def held(question: Question) -> Outcome:
    facts, needed = question.facts, "automatic updates that leave the cards' packages alone"
    if not facts.pci_devices:
        return skipped("no accelerator on the bus", needed)
    if facts.updates is None:
        return question.unknown("updates", needed)
    if not facts.updates.automatic:
        return passed("no automatic updates", needed)
    if facts.updates.held:
        return passed(f"held: {listed(facts.updates.held)}", needed)
    fix = (
        "apt-mark hold the driver's packages, or list them in Unattended-Upgrade::Package-Blacklist"
    )
    return warned("updates are automatic and nothing is held", needed, fix=fix)


def nodes(question: Question) -> Outcome:
    facts, needed = question.facts, "the driver's files in /dev, open to this user"
    held = (None, "nouveau", "vfio-pci", "pci-stub")
    vendors = {card.vendor for card in facts.pci_devices or () if card.driver not in held}
    wanted = [node for vendor in sorted(vendors) for node in NODES.get(vendor, ())]
    if facts.pci_devices is None or facts.device_nodes is None:
        return question.unknown("device_nodes", needed)
    if not vendors:
        return skipped("no accelerator with a driver", needed)
    there = {node.path: node for node in facts.device_nodes}
    gone = [path for path in wanted if path not in there]
    if gone:
        fix = "nvidia-modprobe -c0 -u, or restart the driver's service"
        return by_need(question, f"{listed(gone)} not there", needed, fix=fix)
    closed = [node for node in facts.device_nodes if not node.usable and "uverbs" not in node.path]
    if closed:
        groups = sorted({node.group for node in closed if node.group and node.group != "root"})
        fix = f"usermod -aG {','.join(groups) or 'video,render'} {facts.user}, then log in again"
        return by_need(question, f"{listed([n.path for n in closed])} is closed", needed, fix=fix)
    return passed(f"{len(there)} files", needed)


def open_module(question: Question) -> Outcome:
    facts, needed = question.facts, "the open kernel module on Blackwell cards"
    new = [c for c in question.cards_of("nvidia") if float(c.compute_capability or 0) >= BLACKWELL]
    if not new:
        return skipped("no card needs it", needed)
    if facts.nvidia_module_open is None:
        return question.unknown("nvidia_module_open", needed)
    if facts.nvidia_module_open:
        return passed("it is the open one", needed)
    fix = "install the driver's -open package and reboot"
    return by_need(question, "the proprietary module", needed, fix=fix, remedy=Remedy.REBOOT)


def fabric_manager(question: Question) -> Outcome:
    facts, needed = question.facts, "the fabric manager of the driver's version, its fabric ready"
    states = [s for s in facts.card_states or () if s.vendor == "nvidia" and s.fabric]
    if not states:
        return skipped("no NVSwitch fabric", needed)
    bad = [f"card {s.index}: {s.fabric}" for s in states if s.fabric != "Completed"]
    if bad:
        fix = "systemctl restart nvidia-fabricmanager; see its journal"
        return by_need(question, listed(bad), needed, fix=fix)
    version, module = facts.fabric_manager_version, facts.nvidia_module_version
    if version and module and version != module:
        fix = f"install nvidia-fabricmanager {module}, restart it"
        return by_need(question, f"manager {version}, driver {module}", needed, fix=fix)
    return passed("Completed", needed)


def peer_memory(question: Question) -> Outcome:
    facts, needed = question.facts, "a way for adapters to read cards (nvidia_peermem or dma-buf)"
    if facts.fabric_ports is None:
        return question.unknown("fabric_ports", needed)
    if not facts.fabric_ports or not question.cards_of("nvidia"):
        return skipped("no fabric with NVIDIA cards", needed)
    if facts.kernel_modules is None:
        return question.unknown("kernel_modules", needed)
    found = [m for m in facts.kernel_modules if m in ("nvidia_peermem", "nv_peer_mem")]
    if found:
        return passed(found[0], needed)
    if facts.nvidia_module_open and _parts(facts.kernel or "0")[:2] >= (5, 12):
        return passed("dma-buf: open module and kernel 5.12 or newer", needed)
    return warned("neither is there", needed, fix="modprobe nvidia-peermem")


def peer_errors(question: Question) -> Outcome:
    needed = "no invalid context of nvidia-peermem"
    if not question.facts.fabric_ports or not question.cards_of("nvidia"):
        return skipped("no fabric with NVIDIA cards", needed)
    found = events(question, needed, "peermem")
    if isinstance(found, Outcome):
        return found
    if not found:
        return passed("none", needed)
    fix = "stop the engine, reload nvidia-peermem; update the adapters' driver if it comes back"
    return warned(found[-1].text, needed, fix=fix)


def toolchain(question: Question) -> Outcome:
    facts, needed = question.facts, "a C compiler for kernels that are built at run time"
    if not facts.accelerators or not question.uses_cards:
        return skipped("the service uses no card", needed)
    if facts.tools is None:
        return question.unknown("tools", needed)
    if "gcc" in facts.tools:
        return passed(
            ", ".join(t for t in facts.tools if t in ("gcc", "g++", "nvcc", "ninja")), needed
        )
    return warned(
        "no gcc", needed, fix="apt-get install gcc g++ (Triton and torch.compile need it)"
    )


def firmware(question: Question) -> Outcome:
    needed = "one firmware on cards of one model"
    states = {s.index: s.firmware for s in question.facts.card_states or () if s.firmware}
    cards = [c for c in question.facts.accelerators or () if c.index in states]
    if len(cards) < 2:
        return skipped("fewer than two cards tell theirs", needed)
    found: dict[str, set[str]] = {}
    for card in cards:
        found.setdefault(card.name, set()).add(str(states[card.index]))
    mixed = [f"{name}: {', '.join(sorted(v))}" for name, v in sorted(found.items()) if len(v) > 1]
    if mixed:
        return warned(listed(mixed), needed, fix="bring all cards to the newest of these")
    return passed(", ".join(sorted(v for values in found.values() for v in values)), needed)


CHECKS = (
    Check("drv.bound", "driver", "a driver on every card", bound, ("pci_devices",)),
    Check("drv.cuda.minimum", "driver", "a driver new enough", cuda_minimum,
          ("accelerators", "torch_cuda_version")),
    Check("drv.compat.libs", "driver", "the driver's libcuda", compat,
          ("accelerators", "cuda_compat")),
    Check("drv.pending.reboot", "driver", "no update half done", pending_reboot,
          ("updates", "kernel", "nvidia_module_version"), remedy=Remedy.REBOOT),
    Check("drv.autoupdate.held", "driver", "held packages", held, ("pci_devices", "updates")),
    Check("drv.uvm", "driver", "the driver's files", nodes,
          ("pci_devices", "device_nodes", "user")),
    Check("drv.open.module", "driver", "the open module", open_module,
          ("accelerators", "nvidia_module_open")),
    Check("drv.fabricmanager", "driver", "a ready fabric", fabric_manager,
          ("card_states", "fabric_manager_version", "nvidia_module_version")),
    Check("drv.peermem", "driver", "cards that adapters can read", peer_memory,
          ("accelerators", "fabric_ports", "kernel_modules", "nvidia_module_open", "kernel")),
    Check("drv.peermem.errors", "driver", "no peermem error", peer_errors,
          ("accelerators", "fabric_ports", "kernel_events")),
    Check("drv.jit.toolchain", "driver", "a compiler", toolchain, ("accelerators", "tools")),
    Check("drv.vbios.consistent", "driver", "one firmware", firmware,
          ("accelerators", "card_states")),
)  # fmt: skip
