"""Judges a facts bundle that nothing but itself describes: what was asked of it stands in it."""

from llmdeploy.errors import InputError
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.examine import examine
from llmdeploy.facts.finding import Finding
from llmdeploy.inventory import Host, Inventory
from llmdeploy.service import ModelSource, Service


def judged(bundle: Bundle) -> tuple[Finding, ...]:
    """Every check of preflight on every host, with the defaults of service.yaml for what a bundle
    does not hold; InputError where it holds no host."""
    if not bundle.hosts:
        raise InputError(
            "facts: found no host that answered, needed one",
            fix="collect them: llmdeploy preflight service.yaml --out FILE",
        )
    asked = bundle.hosts[0].asked
    names = [*(facts.host for facts in bundle.hosts), *(gone.host for gone in bundle.unreached)]
    inventory = Inventory(
        hosts=tuple(Host(name=name) for name in names),
        state_root=asked.state_root,
        model_store=asked.model_store,
    )
    service = Service(name=asked.service, cluster="cluster.yaml", model=ModelSource(id=asked.model))
    return examine(bundle, service=service, inventory=inventory).findings


def shift_s(bundle: Bundle, log_name: str) -> float:
    """How far the clock of the host that the log's name begins with or holds is ahead, else 0."""
    for facts in sorted(bundle.hosts, key=lambda facts: -len(facts.host)):
        if facts.host in log_name:
            return facts.clock_offset_s or 0.0
    return 0.0
