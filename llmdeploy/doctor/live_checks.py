"""What the looks at a running service say, one finding a check (`live.…`)."""

from collections.abc import Callable, Mapping, Sequence

from llmdeploy.doctor.live import Live
from llmdeploy.facts.check import Outcome, failed, passed, skipped, warned
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.observe.engine import EngineSample
from llmdeploy.observe.requests import Ending, RequestRecord
from llmdeploy.rollout.overview import quantile
from llmdeploy.units import show_bytes, show_ratio, show_seconds

FULL_RATIO = 0.95
"""KV use from which the next request waits or puts another one back. Source: own choice."""
SPREAD = 8.0
"""p95 over p50 of TTFT or of lengths that is told. Source: own choice: an exponential
distribution, as of lengths in public traces, has 4.3."""
HELD_BACK_RATIO = 0.9
"""Share of an answer's time before its first byte from which it was no stream. Source: own
choice: 16 tokens at equal pace have 1/16 before the first."""
STREAM_TOKENS = 16
"""Fewest tokens of an answer that tells streams from whole ones. Source: own choice."""
FEW = 10
"""Requests under which a distribution says nothing. Source: own choice."""
EMPTY_RATIO = 0.5
"""Share of the plan's batch under which the devices are little used. Source: own choice."""
GROWTH_RATIO, GROWTH_BYTES = 0.02, 64 * 2**20
"""Growth of resident memory between looks that fails: more than both. Source: own choice."""


def findings(live: Live) -> tuple[Finding, ...]:
    """Every check of the table."""
    return tuple(_finding(name, live, judge(live)) for name, judge in CHECKS.items())


def _finding(name: str, live: Live, outcome: Outcome) -> Finding:
    return Finding(
        check=name,
        status=outcome.status,
        subject=f"release {live.release.id}",
        found=outcome.found,
        needed=outcome.needed,
        fix=outcome.fix,
        origin="metrics, supervisor, access log",
    )


def _gateway(live: Live) -> Outcome:
    address = live.service.address or "no address"
    if live.service.gateway_running:
        return passed(f"runs at {address}", "a running gateway")
    fix = f"launch the live release again: its plan brings the gateway up ({live.service.service})"
    return failed(f"does not run ({address})", "a running gateway", fix=fix)


def _processes(live: Live) -> Outcome:
    processes, needed = live.release.processes, "every engine process runs and never restarted"
    if not processes:
        return failed(f"the release is {live.release.phase}", needed, fix="launch it again")
    dead = [p.replica for p in processes if not p.running]
    restarts = sum(p.restarts for p in processes)
    see = f"llmdeploy logs {live.service.service} --release {live.release.id}"
    if dead:
        return failed(f"{', '.join(dead)} does not run", needed, fix=see)
    if restarts:
        return warned(f"{restarts} restarts", needed, fix=see)
    return passed(f"{len(processes)} run, no restart", needed)


def _answers(live: Live) -> Outcome:
    needed = "every engine's health page says 200"
    if live.release.healthy:
        return passed("all engines answer", needed)
    return failed("an engine does not answer 200", needed, fix="see its log and its port")


def _frozen(live: Live) -> Outcome:
    needed = "tokens come while requests run"
    engines = [list(pair) for pair in zip(*(m.engines for m in live.moments), strict=True)]
    told = [[s for s in seen if s is not None] for seen in engines]
    if any(len(seen) < len(live.moments) for seen in told):
        return _untold(needed)
    watched_s = live.moments[-1].at_s - live.moments[0].at_s
    still = [
        seen
        for seen in told
        if all(s.running for s in seen) and seen[0].generated_tokens == seen[-1].generated_tokens
    ]
    if still:
        running = sum(seen[-1].running for seen in still)
        found = f"{running} requests run and no token came for {show_seconds(watched_s)}"
        return failed(found, needed, fix="roll back, or start the release again")
    tokens = sum(seen[-1].generated_tokens - seen[0].generated_tokens for seen in told)
    return passed(f"{tokens} tokens in {show_seconds(watched_s)}", needed)


def _concurrency(live: Live) -> Outcome:
    most, now = live.plan.promises.max_concurrency, _now(live)
    needed = f"at most {most} requests together, as planned"
    if now is None:
        return _untold(needed)
    running, waiting = sum(s.running for s in now), sum(s.waiting for s in now)
    found = f"{running} run, {waiting} wait"
    if running + waiting > 2 * most:
        return failed(found, needed, fix="lower max_queue, or add a replica")
    if running + waiting > most:
        return warned(found, needed, fix="lower max_queue, or add a replica")
    return passed(found, needed)


def _kv_used(live: Live) -> Outcome:
    now, needed = _now(live), f"under {show_ratio(FULL_RATIO)} of the KV cache used"
    if now is None:
        return _untold(needed)
    used_ratio = max(s.kv_used_ratio for s in now)
    found = f"{show_ratio(used_ratio)} of the fullest replica's"
    if used_ratio < FULL_RATIO:
        return passed(found, needed)
    return failed(found, needed, fix="lower max_num_seqs, or add KV cache")


def _kv_idle(live: Live) -> Outcome:
    now, needed = _now(live), "no KV cache used while no request is there"
    if now is None:
        return _untold(needed)
    idle = [s for s in now if not s.running and not s.waiting]
    if not idle:
        return skipped("requests run on every replica", needed)
    used_ratio = max(s.kv_used_ratio for s in idle)
    if used_ratio < 0.01:
        return passed("empty without requests", needed)
    found = f"{show_ratio(used_ratio)} used by no request (a prefix cache may count as used)"
    return warned(found, needed, fix="see whether it grows; start the replica again if it does")


def _queue(live: Live) -> Outcome:
    now, needed = _now(live), "no request waits in the engines"
    if now is None:
        return _untold(needed)
    waiting, running = sum(s.waiting for s in now), sum(s.running for s in now)
    if not waiting:
        return passed(f"none waits, {running} run", needed)
    return warned(f"{waiting} wait, {running} run", needed, fix="add a replica, or admit fewer")


def _balance(live: Live) -> Outcome:
    now, needed = _now(live), "replicas equally loaded"
    if now is None:
        return _untold(needed)
    loads = [s.running + s.waiting for s in now]
    if len(loads) < 2:
        return skipped("one replica", needed)
    found = f"requests per replica: {', '.join(map(str, loads))}"
    if max(loads) <= 2 * min(loads) + 4:
        return passed(found, needed)
    return warned(found, needed, fix="see that the gateway balances by least requests")


def _batch_filled(live: Live) -> Outcome:
    most, now = live.plan.promises.max_concurrency, _now(live)
    needed = f"at least {show_ratio(EMPTY_RATIO)} of the {most} requests planned together"
    if now is None:
        return _untold(needed)
    running, waiting = sum(s.running for s in now), sum(s.waiting for s in now)
    found = f"{running} run, {waiting} wait"
    if running >= EMPTY_RATIO * most:
        return passed(found, needed)
    fix = "more must arrive at once" if not waiting else "raise max_num_seqs or free KV cache"
    return warned(found, needed, fix=fix)


def _rejections(live: Live) -> Outcome:
    needed = "no request is rejected"
    if not live.requests:
        return skipped("no request in the last five minutes", needed)
    rejected = [r for r in live.requests if r.ending == Ending.REJECTED]
    if not rejected:
        return passed(f"0 of {len(live.requests)}", needed)
    by_status = sorted({r.status for r in rejected})
    found = f"{len(rejected)} of {len(live.requests)}, status {', '.join(map(str, by_status))}"
    fix = "429: raise the key's rate or max_queue; 400: see engine.max_model_len"
    return warned(found, needed, fix=fix)


def _latency_spread(live: Live) -> Outcome:
    times = [r.ttft_s for r in _good(live) if r.ttft_s is not None]
    return _spread(times, "TTFT", fix="see live.queue and live.length_spread")


def _length_spread(live: Live) -> Outcome:
    lengths = [float(r.prompt_tokens or 0) for r in _good(live) if r.prompt_tokens]
    return _spread(lengths, "prompt lengths", fix="chunk smaller, or part long from short requests")


def _streams(live: Live) -> Outcome:
    needed = "tokens reach the client as they come"
    shares = [
        r.ttft_s / r.duration_s
        for r in _good(live)
        if r.ttft_s is not None and r.duration_s > 0 and (r.completion_tokens or 0) >= STREAM_TOKENS
    ]
    if len(shares) < FEW:
        return skipped(f"{len(shares)} long streams, {FEW} needed to tell", needed)
    middle_ratio = quantile(shares, 0.5) or 0.0
    found = f"{show_ratio(middle_ratio)} of an answer's time lies before its first byte"
    if middle_ratio < HELD_BACK_RATIO:
        return passed(found, needed)
    return failed(found, needed, fix="turn off response buffering between engine and client")


def _memory_growth(live: Live) -> Outcome:
    needed = "resident memory of the engines stays level"
    first, last = (_resident_bytes(m.engines) for m in (live.moments[0], live.moments[-1]))
    if first is None or last is None:
        return _untold(needed)
    growth_bytes, watched_s = last - first, live.moments[-1].at_s - live.moments[0].at_s
    found = f"{show_bytes(last)}, {show_bytes(max(0, growth_bytes))} more in {watched_s:.0f} s"
    if growth_bytes > max(GROWTH_RATIO * first, GROWTH_BYTES):
        return failed(found, needed, fix="watch it for an hour at an even load; then roll back")
    return Outcome(status=Status.UNKNOWN, found=f"{found}: too short a look to tell", needed=needed)


def _golden(live: Live) -> Outcome:
    needed = "golden prompts answer as they should"
    if live.golden is None:
        return _untold(needed, "golden prompts got no answer")
    bad = [f for f in live.golden if f.status == Status.FAIL]
    if not bad:
        return passed(f"{len(live.golden)} checks of golden answers", needed)
    return failed(bad[0].found, needed, fix="roll back; then llmdeploy models verify")


CHECKS: Mapping[str, Callable[[Live], Outcome]] = {
    "live.gateway": _gateway,
    "live.processes": _processes,
    "live.answers": _answers,
    "live.frozen": _frozen,
    "live.concurrency": _concurrency,
    "live.kv_used": _kv_used,
    "live.kv_idle": _kv_idle,
    "live.queue": _queue,
    "live.balance": _balance,
    "live.batch_filled": _batch_filled,
    "live.rejections": _rejections,
    "live.latency_spread": _latency_spread,
    "live.length_spread": _length_spread,
    "live.streams": _streams,
    "live.memory_growth": _memory_growth,
    "live.golden": _golden,
}
"""By name, in the order in which they are told."""


def _spread(values: Sequence[float], what: str, *, fix: str) -> Outcome:
    needed = f"p95 under {SPREAD:g} times p50"
    if len(values) < FEW:
        return skipped(f"{len(values)} requests, {FEW} needed to tell", needed)
    middle, high = quantile(values, 0.5) or 0.0, quantile(values, 0.95) or 0.0
    times = high / middle if middle else 0.0
    found = f"p95 of {what} is {times:.1f} times p50, {len(values)} requests"
    return passed(found, needed) if times < SPREAD else warned(found, needed, fix=fix)


def _untold(needed: str, found: str = "an engine's metrics do not answer") -> Outcome:
    return Outcome(status=Status.UNKNOWN, found=found, needed=needed)


def _now(live: Live) -> tuple[EngineSample, ...] | None:
    """The engines at the last look; None where one does not answer."""
    told = tuple(s for s in live.moments[-1].engines if s is not None)
    return told if told and len(told) == len(live.moments[-1].engines) else None


def _good(live: Live) -> list[RequestRecord]:
    return [r for r in live.requests if r.ending == Ending.OK]


def _resident_bytes(engines: Sequence[EngineSample | None]) -> int | None:
    sizes = [s.resident_bytes if s else None for s in engines]
    return None if not sizes or None in sizes else sum(size or 0 for size in sizes)
