"""Probes during a gray step: golden prompts, and synthetic pairs where clients are too few."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from llmdeploy.edge import Http
from llmdeploy.errors import LlmDeployError
from llmdeploy.service import GoldenPrompt
from llmdeploy.verdict.document import Decision, Verdict
from llmdeploy.verdict.golden import golden_fault
from llmdeploy.verdict.target import CHAT_PATH, Target, chat_body

GOLDEN_EVERY_S = 5.0
"""Between two golden probes. Source: own choice: garbage is noticed after two, in 10 s."""

GOLDEN_FAULTS = 2
"""Golden faults in a row that roll back. Source: own choice: one can be a near tie."""

PATIENCE_S = 10.0
"""A step that live traffic will fill later than this is topped up.

Source: own choice: the default step_timeout is sixty times as long."""

SETTLING_S = 2.0
"""A step younger than this shows no pace yet. Source: own choice."""

PROBE_TIMEOUT_S = 15.0
"""Silence after which a probe has failed. Source: own choice: far above any objective."""

PAIR_TOKENS = 16
"""Output tokens of a synthetic request. Source: own choice: enough for a time per token."""

PAIRS_TOGETHER = 2
"""Synthetic pairs at once. Source: own choice: they must not be the load themselves."""


def is_short(verdict: Verdict, *, elapsed_s: float) -> bool:
    """Whether live traffic alone, at its pace since the step began, will keep it waiting.

    Only requests whose latency can be told count: the step needs them, too.
    """
    if verdict.decision != Decision.HOLD or elapsed_s < SETTLING_S:
        return False
    timed = max(
        (e.new_requests for e in verdict.evidence if e.metric in ("ttft", "tpot")), default=0
    )
    live_per_s = min(verdict.live_requests, timed) / elapsed_s
    return verdict.missing_requests > live_per_s * PATIENCE_S


@dataclass(slots=True, kw_only=True)
class Prober:
    """Sends probes beside the looks; what they show is in the access log, but for golden text."""

    new: Target
    old: Target | None
    golden: tuple[GoldenPrompt, ...]
    http: Http
    executor: Executor
    next_golden_s: float = 0.0
    asked: int = 0
    faults: list[str] = field(default_factory=list)
    """Golden faults of the new release in a row."""
    golden_flight: "Future[tuple[str | None, str | None]] | None" = None
    pair_flights: "list[Future[None]]" = field(default_factory=list)

    def tick(self, *, now_s: float, top_up: bool) -> str | None:
        """Sends what is due and takes in what came back; harm in words, None where none is."""
        self._take_in()
        if self.golden and self.golden_flight is None and now_s >= self.next_golden_s:
            prompt = self.golden[self.asked % len(self.golden)]
            self.golden_flight = self.executor.submit(self._ask_golden, prompt)
            self.next_golden_s = now_s + GOLDEN_EVERY_S
            self.asked += 1
        self.pair_flights = [f for f in self.pair_flights if not f.done()]
        while top_up and len(self.pair_flights) < PAIRS_TOGETHER:
            self.asked += 1
            self.pair_flights.append(self.executor.submit(self._send_pair, self.asked))
            if self.pair_flights[-1].done():  # an executor that works at once
                break
        return self._harm()

    def _take_in(self) -> None:
        if self.golden_flight is None or not self.golden_flight.done():
            return
        new_fault, old_fault = self.golden_flight.result()
        self.golden_flight = None
        if new_fault is None or old_fault is not None:  # what fails both is the prompt's fault
            self.faults = []
        else:
            self.faults.append(new_fault)

    def _harm(self) -> str | None:
        if len(self.faults) < GOLDEN_FAULTS:
            return None
        return f"golden prompts failed {len(self.faults)} times in a row: {self.faults[-1]}"

    def _ask_golden(self, prompt: GoldenPrompt) -> tuple[str | None, str | None]:
        new_fault = _fault(lambda: self._golden_fault(self.new, prompt))
        old = self.old
        if old is None:
            return new_fault, None
        return new_fault, _fault(lambda: self._golden_fault(old, prompt))

    def _golden_fault(self, target: Target, prompt: GoldenPrompt) -> str | None:
        return golden_fault(target, prompt, timeout_s=PROBE_TIMEOUT_S, http=self.http)

    def _send_pair(self, number: int) -> None:
        targets = [t for t in (self.new, self.old) if t is not None]
        for target in targets if number % 2 else reversed(targets):
            _fault(lambda target=target: _send(target, number, self.http))  # type: ignore[misc]


def _fault(ask: Callable[[], str | None]) -> str | None:
    try:
        return ask()
    except LlmDeployError as error:
        return str(error)


def _send(target: Target, number: int, http: Http) -> None:
    """One streamed request, so that the gateway sees its first token; the answer is not needed."""
    body = chat_body(
        target, f"Tell me about the number {number}.", max_tokens=PAIR_TOKENS, stream=True
    )
    for _ in http.stream(
        "POST",
        target.url + CHAT_PATH,
        timeout_s=PROBE_TIMEOUT_S,
        json_body=body,
        headers=dict(target.headers),
        socket_path=target.socket_path,
    ):
        pass
