"""Checks of links between cards and of InfiniBand, RoCE and Ascend ports."""

from llmdeploy.facts.check import Check, Outcome, Question, by_need, passed, skipped, warned
from llmdeploy.facts.checks.words import events, listed
from llmdeploy.facts.finding import Remedy
from llmdeploy.facts.interface import FabricPort

PORT_ERRORS = 100
"""Errors since the adapter started that a healthy cable does not reach. Source: own choice;
the catalogue compares two samples, a single one cannot."""
PORT_DOWNS = 10
BARE = (None, "none")
"""What `systemd-detect-virt` says on real hardware."""


def topology(question: Question) -> Outcome:
    needed = "cards of a tensor-parallel group in one NVLink island or on one socket"
    matrix = question.facts.card_topology
    if not question.facts.known("card_topology"):
        return question.unknown("card_topology", needed)
    if matrix is None or len(matrix.cards) < 2:
        return skipped("fewer than two cards with a matrix", needed)
    words = sorted({word for row in matrix.links for word in row if word != "X"})
    group = question.planned.cards if question.planned else question.tensor_parallel
    across = [
        f"{matrix.cards[a]}-{matrix.cards[b]}"
        for a, row in enumerate(matrix.links[:group])
        for b, word in enumerate(row[:group])
        if a < b and word == "SYS"
    ]
    if group > 1 and across:
        fix = "choose cards of one socket, use pipeline_parallel across sockets, or accept the loss"
        return warned(f"SYS (across sockets) between {listed(across)}", needed, fix=fix)
    return passed(", ".join(words), needed)


def nvlink(question: Question) -> Outcome:
    needed = "every NVLink active"
    links = question.facts.card_links
    if links is None:
        if not question.facts.accelerators:
            return skipped("no card answers", needed)
        return question.unknown("card_links", needed)
    if not any(link.bytes_per_s for link in links):
        return skipped("no NVLink is in use", needed)
    down = [f"card {ln.index} link {ln.link}" for ln in links if not ln.bytes_per_s]
    if down:
        fix = "reset the cards, seat the bridge again; service the board if it stays"
        return by_need(question, f"inactive: {listed(down)}", needed, fix=fix)
    counts = dict.fromkeys(sorted({link.index for link in links}), 0)
    for link in links:
        counts[link.index] += 1
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"card {index}: {count}" for index, count in counts.items())
        return by_need(question, shown, f"{needed}, equally many on each card",
                       fix="see which bridge or cable is missing")  # fmt: skip
    return passed(f"{len(links)} links of {len(counts)} cards", needed)


def switch_faults(question: Question) -> Outcome:
    needed = "no fatal fault of an NVSwitch in the last day"
    if not any(s.fabric for s in question.facts.card_states or ()):
        return skipped("no NVSwitch fabric", needed)
    found = events(question, needed, "sxid")
    if isinstance(found, Outcome):
        return found
    fatal = [e for e in found if "Non-fatal" not in e.text]
    if fatal:
        said = f"SXid {fatal[-1].code} on {fatal[-1].address}"
        return by_need(question, said, needed, fix="have the host serviced: its NVSwitch fails")
    if found:
        fix = "watch it: nvidia-smi nvlink -e"
        return warned(f"SXid {found[-1].code}, not fatal", needed, fix=fix, remedy=Remedy.CONFIG)
    return passed("none", needed)


def peers(question: Question) -> Outcome:
    needed = "copies from card to card, where a group of cards shares a layer"
    matrix = question.facts.peer_access
    if not question.facts.known("peer_access"):
        return question.unknown("peer_access", needed)
    if matrix is None or len(matrix.cards) < 2:
        return skipped("fewer than two NVIDIA cards", needed)
    words = sorted({word for row in matrix.words for word in row if word != "X"})
    if words == ["OK"] or question.tensor_parallel == 1:
        return passed(", ".join(words), needed)
    fix = "launch with NCCL_P2P_DISABLE=1 (consumer cards), or see IOMMU and ACS"
    return warned(", ".join(words), needed, fix=fix)


def acs(question: Question) -> Outcome:
    facts, needed = question.facts, "no ACS on bridges: copies between cards go straight"
    if facts.virtualization not in BARE:
        return skipped(f"the host is virtual ({facts.virtualization})", needed)
    if len(facts.accelerators or ()) < 2:
        return skipped("fewer than two cards", needed)
    if facts.acs_bridges is None:
        return question.unknown("acs_bridges", needed)
    if facts.acs_bridges == 0:
        return passed("off", needed)
    fix = "switch ACS off in the BIOS, or setpci -s BRIDGE ECAP_ACS+0x6.w=0000 at each start"
    return warned(f"on {facts.acs_bridges} bridges", needed, fix=fix)


def iommu(question: Question) -> Outcome:
    facts, needed = question.facts, "no IOMMU between cards, or iommu=pt"
    if facts.virtualization not in BARE:
        return skipped(f"the host is virtual ({facts.virtualization})", needed)
    if len(facts.accelerators or ()) < 2:
        return skipped("fewer than two cards", needed)
    if facts.iommu is None or facts.kernel_arguments is None:
        return question.unknown("iommu" if facts.iommu is None else "kernel_arguments", needed)
    if not facts.iommu or "iommu=pt" in facts.kernel_arguments:
        return passed("off" if not facts.iommu else "iommu=pt", needed)
    shown = ", ".join(a for a in facts.kernel_arguments if "iommu" in a) or "no iommu= argument"
    fix = "add iommu=pt to GRUB_CMDLINE_LINUX, update-grub, reboot"
    return warned(f"it translates ({shown})", needed, fix=fix)


def ports(question: Question) -> Outcome:
    needed = "fabric ports that are up, of one kind"
    found = _ports(question, needed)
    if isinstance(found, Outcome):
        return found
    waiting = [f"{p.device}: {p.state}" for p in found if _linked(p) and p.state != "ACTIVE"]
    if waiting:
        fix = "see the subnet manager (InfiniBand) or the switch port (RoCE)"
        return by_need(question, listed(waiting), needed, fix=fix)
    down = [f"{p.device} port {p.port}: {p.physical or p.state}" for p in found if not _linked(p)]
    if down:
        fix = "see cable and transceiver, or leave it out: NCCL_IB_HCA=^DEVICE"
        return warned(listed(down), needed, fix=fix, remedy=Remedy.HARDWARE)
    kinds = sorted({port.link_layer or "?" for port in found})
    if len(kinds) > 1:
        return warned(", ".join(kinds), needed, fix="name the ports of one kind in NCCL_IB_HCA")
    return passed(f"{len(found)} ports, {kinds[0]}", needed)


def _ports(question: Question, needed: str) -> tuple[FabricPort, ...] | Outcome:
    found = question.facts.fabric_ports
    if found is None:
        return question.unknown("fabric_ports", needed)
    return found or skipped("no InfiniBand or RoCE adapter", needed)


def _linked(port: FabricPort) -> bool:
    return port.physical in (None, "LinkUp")


def port_errors(question: Question) -> Outcome:
    needed = f"fewer than {PORT_ERRORS} errors and {PORT_DOWNS} link losses a port"
    found = _ports(question, needed)
    if isinstance(found, Outcome):
        return found
    bad = [
        f"{p.device}: {p.errors or 0} errors, {p.downs or 0} losses"
        for p in found
        if (p.errors or 0) >= PORT_ERRORS or (p.downs or 0) >= PORT_DOWNS
    ]
    if bad:
        return warned(listed(bad), needed, fix="clean or replace optic and cable of these ports")
    return passed(f"{sum(p.errors or 0 for p in found)} errors", needed)


def flaps(question: Question) -> Outcome:
    needed = "no link lost in the last day"
    if not question.facts.fabric_ports and question.alone:
        return skipped("one host without a fabric", needed)
    found = events(question, needed, "link_down")
    if isinstance(found, Outcome):
        return found
    if not found:
        return passed("none", needed)
    fix = "watch the port for 10 minutes before it is used; look at cable and switch port"
    return warned(f"{len(found)} times, last: {found[-1].text}", needed, fix=fix)


def npu_ports(question: Question) -> Outcome:
    needed = "the fabric link of every Ascend chip up"
    if not question.cards_of("ascend"):
        return skipped("no Ascend card answers", needed)
    links = question.facts.npu_links
    if links is None:
        return question.unknown("npu_links", needed)
    down = [link for link in links if not link.endswith(" UP")]
    if down:
        fix = "hccn_tool -i CHIP -link -g; see address, cable and switch port of these chips"
        return by_need(question, listed(down), needed, fix=fix)
    return passed(f"{len(links)} up", needed)


CHECKS = (
    Check("fab.topo", "fabric", "cards near each other", topology, ("card_topology",)),
    Check("fab.nvlink.active", "fabric", "all NVLinks up", nvlink,
          ("accelerators", "card_links"), remedy=Remedy.HARDWARE),
    Check("fab.sxid", "fabric", "no switch fault", switch_faults,
          ("card_states", "kernel_events"), remedy=Remedy.HARDWARE),
    Check("fab.p2p.reported", "fabric", "copies between cards", peers, ("peer_access",)),
    Check("fab.acs", "fabric", "straight copies", acs,
          ("virtualization", "accelerators", "acs_bridges"), remedy=Remedy.REBOOT),
    Check("fab.iommu", "fabric", "no translation", iommu,
          ("virtualization", "accelerators", "iommu", "kernel_arguments"), remedy=Remedy.REBOOT),
    Check("fab.ib.port", "fabric", "ports up", ports, ("fabric_ports",)),
    Check("fab.ib.errors", "fabric", "clean ports", port_errors, ("fabric_ports",),
          remedy=Remedy.HARDWARE),
    Check("fab.ib.flap", "fabric", "no link lost", flaps, ("fabric_ports", "kernel_events"),
          remedy=Remedy.HARDWARE),
    Check("fab.npu.hccn", "fabric", "Ascend links up", npu_ports,
          ("accelerators", "npu_links"), remedy=Remedy.HARDWARE),
)  # fmt: skip
