"""What a check is: a question about one host's facts, and one of five answers."""

from collections.abc import Callable
from dataclasses import dataclass

from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.device import Accelerator
from llmdeploy.facts.finding import Remedy, Status
from llmdeploy.facts.section import UNTRIED
from llmdeploy.facts.storage import Disk, StoredModel
from llmdeploy.inventory import Host, Inventory
from llmdeploy.service import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a plan needs of one host."""

    engine: str = "embedded"
    tensor_parallel: int = 1
    cards: int = 0
    """Accelerators of this host that it uses; 0: the processor."""
    card_memory_bytes: int | None = None
    """What it fills of each card."""
    host_memory_bytes: int | None = None
    disk_bytes: int | None = None
    """Weights to be staged."""
    ports: tuple[int, ...] = ()
    """TCP ports that its processes will listen on."""
    weights: str | None = None
    """Format that its cards compute with, such as `fp8`; `bf16` and the like are none."""
    attention_heads: int | None = None
    kv_heads: int | None = None
    """Of the model, as far as the plan says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What every check may look at, and nothing else."""

    facts: HostFacts
    host: Host
    inventory: Inventory
    service: Service
    llmdeploy: str
    """Version of the controller that collected the facts."""
    planned: Planned | None = None
    """What a plan puts on this host; None: there is no plan yet."""

    @property
    def on_cuda(self) -> bool:
        """Whether the engine would run on a CUDA device."""
        wanted = self.service.engine.device
        return wanted == "cuda" or (wanted == "auto" and self.torch_uses_cards)

    @property
    def torch_uses_cards(self) -> bool:
        """Whether torch can use a card; with `--quick`, whether it is built for those there."""
        if self.facts.problem("torch_cuda_devices") == UNTRIED:
            cards = (*self.cards_of("nvidia"), *self.cards_of("amd"))
            return bool(cards) and self.facts.torch_cuda_version is not None
        return bool(self.facts.torch_cuda_devices)

    @property
    def uses_cards(self) -> bool:
        """Whether the service may run on this host's accelerators."""
        return self.service.engine.device != "cpu"

    @property
    def tensor_parallel(self) -> int:
        """Processes that share each layer: the plan's, else what the service asks for."""
        if self.planned is not None:
            return self.planned.tensor_parallel
        return self.service.engine.tensor_parallel or 1

    @property
    def weights(self) -> str:
        """Format of the weights on the cards: the plan's, else what the service asks for."""
        planned = self.planned.weights if self.planned else None
        return planned or self.service.model.quantization

    @property
    def engine(self) -> str:
        """The engine: the plan's, else the service's; `auto` is the embedded one here."""
        kind = self.planned.engine if self.planned else self.service.engine.kind
        return "embedded" if kind == "auto" else kind

    @property
    def is_gateway(self) -> bool:
        """Whether this is the host that runs the gateway."""
        return self.facts.host == self.inventory.gateway_name

    @property
    def alone(self) -> bool:
        """Whether the cluster is this one host."""
        return sum(host.count for host in self.inventory.hosts) == 1

    def cards_of(self, vendor: str) -> tuple[Accelerator, ...]:
        """The cards of one vendor that answer."""
        return tuple(card for card in self.facts.accelerators or () if card.vendor == vendor)

    @property
    def has_accelerators(self) -> bool:
        return bool(self.facts.pci_devices or self.facts.accelerators)

    @property
    def model(self) -> StoredModel | None:
        """The stored model, if the host has the one that the service names, with its manifest."""
        model = self.facts.model
        asked = self.facts.asked.model == self.service.model.id
        return model if model and asked and model.problem is None else None

    def disk(self, purpose: str) -> Disk | None:
        return next((d for d in self.facts.disks or () if d.purpose == purpose), None)

    def unknown(self, fact: str, needed: str) -> "Outcome":
        """UNKNOWN, with the reason of the fact's source; SKIP where `--quick` did not try it."""
        source = next((source for source in self.facts.sources if source.fact == fact), None)
        tool = source.tool if source else "the probe"
        reason = self.facts.problem(fact) or "the host says nothing about it"
        if reason == UNTRIED:
            return skipped(reason, needed)
        fix = f"make `{tool}` answer for this user on {self.facts.host}, then run preflight again"
        return Outcome(status=Status.UNKNOWN, found=reason, needed=needed, fix=fix)

    def without_model(self, needed: str) -> "Outcome":
        """UNKNOWN, because the host does not have the service's model."""
        asked, wanted, model = self.facts.asked.model, self.service.model.id, self.facts.model
        if asked != wanted:
            reason, fix = f"the host was asked about {asked}", "run preflight again without --from"
        elif model is None:
            return self.unknown("model", needed)
        else:
            reason, fix = f"{wanted}: {model.problem}", "see sto.model.present"
        return Outcome(status=Status.UNKNOWN, found=reason, needed=needed, fix=fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One answer; `fix` is empty where nothing is wrong."""

    status: Status
    found: str
    needed: str
    fix: str = ""
    remedy: Remedy | None = None
    """Where it differs from the check's own."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table of checks."""

    id: str
    group: str
    what: str
    """What is good, in words."""
    judge: Callable[[Question], Outcome]
    reads: tuple[str, ...]
    """Facts that it looks at; their sources are the finding's origin."""
    gate: bool = False
    """Whether UNKNOWN blocks as FAIL does: nothing starts where this does not hold."""
    remedy: Remedy = Remedy.CONFIG
    gateway: bool = False
    """Whether it is about the gateway, and so about the host that runs it alone."""


def passed(found: str, needed: str) -> Outcome:
    """PASS."""
    return Outcome(status=Status.PASS, found=found, needed=needed)


def skipped(reason: str, needed: str) -> Outcome:
    """SKIP: there is nothing to judge here."""
    return Outcome(status=Status.SKIP, found=reason, needed=needed)


def warned(found: str, needed: str, *, fix: str, remedy: Remedy | None = None) -> Outcome:
    """WARN: it works, with a loss or a risk that the words name."""
    return Outcome(status=Status.WARN, found=found, needed=needed, fix=fix, remedy=remedy)


def failed(found: str, needed: str, *, fix: str, remedy: Remedy | None = None) -> Outcome:
    """FAIL: it would not work."""
    return Outcome(status=Status.FAIL, found=found, needed=needed, fix=fix, remedy=remedy)


def by_need(
    question: Question, found: str, needed: str, *, fix: str, remedy: Remedy | None = None
) -> Outcome:
    """FAIL where the engine may use the cards, WARN where the service says cpu."""
    say = failed if question.uses_cards else warned
    return say(found, needed, fix=fix, remedy=remedy)
