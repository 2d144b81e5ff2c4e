"""Checks of what belongs together: cards and torch, cards and sockets, peers, stacks."""

import ipaddress

from llmdeploy.facts.check import Check, Outcome, Question, failed, passed, skipped, warned
from llmdeploy.facts.checks.words import listed

ASCEND_STACK = (("vllm-ascend", "vllm"), ("torch-npu", "torch"))
"""Pairs that carry the same version number. Source: vllm-ascend 0.23 installation guide, table of
versions; torch_npu's README."""


def torch_cards(question: Question) -> Outcome:
    needed = "torch seeing every card that answers"
    facts = question.facts
    cards = [*question.cards_of("nvidia"), *question.cards_of("amd")]
    if not cards or not question.uses_cards:
        return skipped("the service uses no CUDA or ROCm card", needed)
    if facts.torch_cuda_devices is None:
        return question.unknown("torch_cuda_devices", needed)
    if facts.torch_cuda_devices == 0:
        return skipped("torch sees none: see gpu.device", needed)
    found = f"{facts.torch_cuda_devices} of {len(cards)}"
    if facts.torch_cuda_devices >= len(cards):
        return passed(found, needed)
    names = [n for n in facts.environment_names or () if n.endswith("_VISIBLE_DEVICES")]
    fix = (
        f"unset {' '.join(names)}"
        if names
        else "see why: python -c 'import torch; torch.zeros(1).cuda()'"
    )
    short = question.planned is not None and question.planned.cards > facts.torch_cuda_devices
    return (failed if short else warned)(found, needed, fix=fix)


def numa(question: Question) -> Outcome:
    needed = "the NUMA node of every card known"
    facts = question.facts
    if not facts.known("card_topology"):
        return question.unknown("card_topology", needed)
    if facts.card_topology is None or (facts.numa_nodes or 1) < 2:
        return skipped("one node, or no matrix of cards", needed)
    nodes = facts.card_topology.numa
    if all(node is not None for node in nodes):
        return passed(", ".join(f"card {i}: {n}" for i, n in enumerate(nodes)), needed)
    fix = "switch NUMA on in the BIOS (SRAT), or bind processes by hand with numactl"
    return warned(f"{nodes.count(None)} cards without one", needed, fix=fix)


def peers(question: Question) -> Outcome:
    needed = "the other hosts' data addresses in this host's data network"
    mine, interfaces = question.host.data_address, question.facts.interfaces
    others = {h.data_address for h in question.inventory.hosts} - {mine}
    if not others or not _plain(mine):
        return skipped("one host, or data addresses are loopback", needed)
    if interfaces is None:
        return question.unknown("interfaces", needed)
    own = [(i.name, n) for i in interfaces for n in i.networks if n.partition("/")[0] == mine]
    if not own:
        return skipped(f"no interface shows {mine}", needed)
    name, network = own[0][0], ipaddress.ip_interface(own[0][1]).network
    outside = sorted(o for o in others if _plain(o) and ipaddress.ip_address(o) not in network)
    if not outside:
        return passed(f"{name} ({network})", needed)
    fix = "set data_address of all hosts to one network, or see `ip route get ADDRESS` on this host"
    return warned(f"{listed(outside)} not in {network} of {name}", needed, fix=fix)


def _plain(address: str) -> bool:
    """Whether it is an IP address that others can reach."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def ascend_stack(question: Question) -> Outcome:
    needed = "vllm-ascend of vLLM's version, torch-npu of torch's"
    if not question.cards_of("ascend"):
        return skipped("no Ascend card answers", needed)
    if question.facts.packages is None:
        return question.unknown("packages", needed)
    have = {p.name: p.version for p in question.facts.packages if p.version}
    pairs = [(a, b) for a, b in ASCEND_STACK if a in have]
    if not pairs:
        return skipped("no package for Ascend is installed", needed)
    bad = [
        f"{a} {have[a]} with {b} {have.get(b, 'missing')}"
        for a, b in pairs
        if _release(have[a]) != _release(have.get(b, ""))
    ]
    if bad:
        return failed(listed(bad), needed, fix="install one row of vllm-ascend's table of versions")
    return passed(", ".join(f"{a} {have[a]}" for a, _ in pairs), needed)


def _release(version: str) -> str:
    """`2.10.0` of `2.10.0.post4` and `2.10.0+cpu`."""
    return ".".join(version.partition("+")[0].split(".")[:3])


CHECKS = (
    Check("rt.torch.cuda", "runtime", "torch with all cards", torch_cards,
          ("accelerators", "torch_cuda_devices", "environment_names")),
    Check("rt.ascend.set", "runtime", "an Ascend stack of one row", ascend_stack,
          ("accelerators", "packages")),
    Check("os.numa", "os", "cards with a NUMA node", numa, ("card_topology", "numa_nodes")),
    Check("net.ifname.pick", "network", "an interface for all peers", peers, ("interfaces",)),
)  # fmt: skip
