"""Acceptance of speed and memory: tokens per second at the planned load, growth over a round."""

from llmdeploy.document import Document
from llmdeploy.edge import Clock, Http
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.observe.engine import EngineSample, engine_sample
from llmdeploy.units import show_bytes, show_ratio
from llmdeploy.verdict.api_checks import CONCURRENT, finding
from llmdeploy.verdict.target import REQUEST_TIMEOUT_S, Target, ask_together

MOST_TOGETHER = 16
"""Most requests of the speed check. Source: own choice: bounds the check to seconds on one core."""

SPEED_TOKENS = 32
"""Output tokens of each. Source: own choice, as MOST_TOGETHER."""

PROMISED_RATIO, OLD_RATIO = 0.2, 0.1
"""Less than this share of the promised speed, or of the old release's when it was accepted,
fails: a release that is no use at all.

Source: own measurement: one and the same release brought 193 tokens/s on an idle 2-core host and 33
beside five other busy processes. A burst cannot tell a slower release from a busier host; the gray
steps can, where old and new are measured at the same time."""

WARN_RATIO = 0.7
"""Less than this share is told. Source: own choice."""

GROWTH_RATIO, GROWTH_BYTES = 0.05, 64 * 2**20
"""Growth of resident memory that fails: more than both, in a round of requests after a larger
one has filled every buffer.

Source: own choice: allocators keep a few MiB; a leak of 8 MiB a request ends a host in a day."""


class Speed(Document):
    """What a burst of requests brought."""

    requests: int
    output_tokens: int
    elapsed_s: float

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens per second over all requests, prompts included in the time."""
        return self.output_tokens / self.elapsed_s


def measure(target: Target, *, http: Http, clock: Clock) -> Speed:
    """The speed of as many equal requests at once as the plan decodes together, at most 16."""
    requests = min(MOST_TOGETHER, target.promises.max_concurrency)
    prompts = [f"Tell a story about the number {i}." for i in range(requests)]
    began_s = clock.monotonic_s()
    answers = ask_together(target, prompts, max_tokens=SPEED_TOKENS, http=http, ignore_eos=True)
    return Speed(
        requests=requests,
        output_tokens=sum(a.output_tokens for a in answers),
        elapsed_s=max(1e-6, clock.monotonic_s() - began_s),
    )


def speed_findings(target: Target, speed: Speed, *, old: Speed | None) -> tuple[Finding, ...]:
    """The burst against the promise, and against the old release's own when it was accepted."""
    share = speed.requests / max(1, target.promises.max_concurrency)
    promised_per_s = target.promises.output_tokens_per_s * min(1.0, share)
    found = [_against(target, "speed", speed, promised_per_s, PROMISED_RATIO, "promised")]
    if old is not None and old.requests == speed.requests:
        per_s = old.output_tokens_per_s
        found.append(_against(target, "speed_old", speed, per_s, OLD_RATIO, "of the old release"))
    return tuple(found)


def _against(
    target: Target, check: str, speed: Speed, needed_per_s: float, least_ratio: float, whose: str
) -> Finding:
    ratio = speed.output_tokens_per_s / needed_per_s if needed_per_s else 1.0
    status = Status.PASS if ratio >= WARN_RATIO else Status.WARN
    found = (
        f"{speed.output_tokens_per_s:.0f} output tokens/s with {speed.requests} requests at once, "
        f"{show_ratio(ratio)} of {needed_per_s:.0f} {whose}"
    )
    status = Status.FAIL if ratio < least_ratio else status
    return finding(target, check, status, found, f"at least {show_ratio(least_ratio)}")


def samples(target: Target, *, http: Http) -> tuple[EngineSample, ...]:
    """Each engine endpoint's state; Unreachable where one does not tell."""
    return tuple(
        engine_sample(
            http.request("GET", url, timeout_s=REQUEST_TIMEOUT_S).body.decode(errors="replace")
        )
        for url in target.metrics_urls
    )


def memory(target: Target, *, http: Http) -> tuple[Finding, ...]:
    """Whether metrics are reachable and resident memory stays level over one more round."""
    prompts = [f"Say the number {i}." for i in range(CONCURRENT)]
    first = samples(target, http=http)
    ask_together(target, prompts, max_tokens=8, http=http)
    second = samples(target, http=http)
    tokens = sum(s.generated_tokens for s in second) - sum(s.generated_tokens for s in first)
    status = Status.PASS if tokens > 0 else Status.FAIL
    found = f"{len(second)} endpoints, {tokens} tokens counted in a round"
    counted = finding(target, "metrics", status, found, "a token counter that moves")
    return counted, _growth(target, _resident_bytes(first), _resident_bytes(second))


def _growth(target: Target, first_bytes: int | None, second_bytes: int | None) -> Finding:
    needed = f"growth up to {show_ratio(GROWTH_RATIO)} or {show_bytes(GROWTH_BYTES)}"
    if not first_bytes or not second_bytes:
        return finding(target, "memory", Status.UNKNOWN, "no resident size told", needed)
    growth_bytes = second_bytes - first_bytes
    bad = growth_bytes > max(GROWTH_RATIO * first_bytes, GROWTH_BYTES)
    found = f"{show_bytes(first_bytes)}, {show_bytes(growth_bytes)} more after a further round"
    return finding(target, "memory", Status.FAIL if bad else Status.PASS, found, needed)


def _resident_bytes(sampled: tuple[EngineSample, ...]) -> int | None:
    sizes = [s.resident_bytes for s in sampled]
    return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)
