"""Two engines with queues under clients that ask again at once: is an equal release rolled back?

    python tests/bench/closed_loop.py [--runs 40] [--clients 32]

The worst case for the judge: requests on one engine share its queue, so that latencies of equal
releases differ for seconds. Prints how many of the runs were rolled back and how long it took,
for equal releases and for slower ones. No engine is started; a minute on one core.
"""

import argparse
import heapq
import random
import statistics
import sys
from dataclasses import dataclass, field

from llmdeploy.rollout.evidence import HISTORY_S
from llmdeploy.service import Objectives, ReleasePolicy
from llmdeploy.verdict.document import Decision, Verdict
from llmdeploy.verdict.judge import judge
from llmdeploy.verdict.look import Look, Pace, Sample, pace_of

STEP_S, TOKEN_S, PROMPT_S = 0.017, 0.0036, 0.02
"""A step's fixed time, what each running answer and each new prompt adds.

Source: SmolLM2-135M on one core: 20 ms alone, 133 ms with 32 answers."""
SHARES = (0.05, 0.25, 0.5)
BEFORE_S, MOST_S = 20.0, 600.0


@dataclass
class Request:
    """One request on its way."""

    started_s: float
    tokens: int
    first_s: float = 0.0
    made: int = 0
    flown: float = 0.0
    """The engine's integral of requests in flight when it came."""


@dataclass
class Engine:
    """One release's engine: continuous batching, one step after the other."""

    slowdown: float
    machine: float = 1.0
    """The machine's time over the one that the constants were measured on."""
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    flown: float = 0.0
    """Requests in flight, integrated over time up to `flown_s`."""
    flown_s: float = 0.0

    def flown_at(self, now_s: float) -> float:
        """The integral up to now."""
        self.flown += (len(self.waiting) + len(self.running)) * (now_s - self.flown_s)
        self.flown_s = now_s
        return self.flown

    def ask(self, request: Request) -> None:
        """One more request."""
        request.flown = self.flown_at(request.started_s)
        self.waiting.append(request)

    def step(self, now_s: float, rng: random.Random) -> tuple[float, list[Request]]:
        """When the step ends, and which answers end with it."""
        newcomers, self.waiting = self.waiting[:4], self.waiting[4:]
        self.running += newcomers
        took_s = STEP_S + TOKEN_S * len(self.running) + PROMPT_S * len(newcomers)
        end_s = now_s + took_s * self.slowdown * max(0.5, rng.gauss(1, 0.1)) * self.machine
        for request in self.running:
            request.first_s = request.first_s or end_s
            request.made += 1
        ended = [r for r in self.running if r.made >= r.tokens]
        self.running = [r for r in self.running if r.made < r.tokens]
        return (end_s if self.running or self.waiting else max(end_s, now_s + 0.01)), ended


def gray(seed: int, *, clients: int, slowdown: float, machine: float) -> Verdict:
    """The last verdict of one gray release: promoted at the last share, or rolled back."""
    rng = random.Random(seed)
    engines = {False: Engine(1.0, machine), True: Engine(slowdown, machine)}
    engines[False].waiting = [Request(0.0, rng.randint(6, 16)) for _ in range(clients)]
    turns, samples = [(0.0, False), (0.0, True)], []
    at, step_s, look_s = -1, BEFORE_S, BEFORE_S
    while True:
        now_s, new = heapq.heappop(turns)
        end_s, ended = engines[new].step(now_s, rng)
        heapq.heappush(turns, (end_s, new))
        for request in ended:
            load = (engines[new].flown_at(end_s) - request.flown) / (end_s - request.started_s)
            samples.append((request.started_s, sample(request, new, end_s, load)))
            picked = at >= 0 and rng.random() < SHARES[at]
            engines[picked].ask(Request(end_s, rng.randint(6, 16)))
        if end_s < look_s:
            continue
        look_s = end_s + 1
        if at >= 0:
            seen = tuple(s for started_s, s in samples if started_s >= step_s)
            known = [s for started_s, s in samples if started_s >= step_s - HISTORY_S]
            verdict = judge(look(seen, SHARES[at], step_s, end_s, pace=pace_of(known)))
            over = at == len(SHARES) - 1 or end_s - step_s > MOST_S
            if verdict.decision == Decision.ROLL_BACK or (
                verdict.decision == Decision.PROMOTE and over
            ):
                return verdict
            if verdict.decision == Decision.HOLD and end_s - step_s < MOST_S:
                continue
        at, step_s = at + 1, end_s


def sample(request: Request, new: bool, end_s: float, load: float) -> Sample:
    """The request as evidence."""
    return Sample(
        new=new, probe=False, failed=False, ended_s=end_s,
        ttft_s=request.first_s - request.started_s,
        tpot_s=(end_s - request.first_s) / (request.tokens - 1), output_tokens=request.tokens,
        load=load,
    )  # fmt: skip


def look(
    samples: tuple[Sample, ...], share: float, step_s: float, at_s: float, *, pace: Pace
) -> Look:
    """One look at the step."""
    return Look(
        release="new", old_release="old", share=share, step_started_s=step_s, at_s=at_s,
        policy=ReleasePolicy(), objectives=Objectives(), samples=samples,
        pace=pace,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--machine", type=float, default=1.0, help="times slower than measured")
    parser.add_argument("--slowdowns", type=float, nargs="*", default=[1.0, 1.5, 2.0])
    options = parser.parse_args()
    for slowdown in options.slowdowns:
        ends = [
            gray(i, clients=options.clients, slowdown=slowdown, machine=options.machine)
            for i in range(options.runs)
        ]
        back = [v for v in ends if v.decision == Decision.ROLL_BACK]
        found = statistics.median(v.live_requests for v in back) if back else 0
        sys.stdout.write(
            f"time x{slowdown:g}, {options.clients} clients: {len(back)} of {len(ends)} rolled "
            f"back, after {found:.0f} requests in the median\n"
        )


if __name__ == "__main__":
    main()
