"""The table of errors: by engine, version class, device and kind of cache.

What the clear cases that are judged wrong have in common: the record holds no reason that a case
line could.

- mem117: Qwen3-8B with 0.4 of an 80 GiB card: 32 GiB less weights of 15.3 and a peak of 1.4 leave
  15 GiB; that there were none means that another program held them (vLLM 0.8 counts what is in use
  on the card as its own).
- mem141: Jamba with vLLM 0.5.5: the KV cache is foretold within 4 %, and allocating it, or its
  4 GiB of swap space in pinned host memory, failed.

Of the others, mem168 tells neither version nor fraction, mem202 neither the checkpoint nor the
version. Where the record has a model's name alone and logged weights that are another checkpoint's
(in 4 bits, most often), there is no verdict to check: those are listed apart. Hybrid and sliding
caches of versions that the log does not tell, by its words neither, have intervals alone: what is
printed for them changed with the version by up to four times."""

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from llmdeploy.estimate.answer import MemoryEstimate

from .compare import Compared, compared, held_out, with_logged_weights
from .rows import Row

CLEAR = ("fail_max_len_exceeds_kv", "fail_no_kv_memory", "oom_weight_load", "oom_kv_alloc")
"""Refusals that follow from the case's own keys."""
MISNAMED_RATIO = 0.2
"""Between counted and logged weights. Source: own choice: formats of one checkpoint that its
quantisation's word does not tell differ by up to 14 %, ModelSlim's on Ascend by 25 %."""


@dataclass(slots=True)
class Errors:
    """Relative errors of one group, and how many intervals held the truth."""

    signed: list[float] = field(default_factory=list)
    held: int = 0

    @property
    def median(self) -> float:
        return statistics.median(abs(error) for error in self.signed) if self.signed else 0.0

    def quantile(self, ratio: float) -> float:
        ordered = sorted(abs(error) for error in self.signed)
        return ordered[min(len(ordered) - 1, int(ratio * len(ordered)))] if ordered else 0.0

    @property
    def coverage(self) -> float:
        return self.held / len(self.signed) if self.signed else 0.0

    def words(self) -> str:
        count = len(self.signed)
        return (
            f"n {count:3d}  median {self.median:6.2%}  p90 {self.quantile(0.9):7.2%}"
            f"  interval {self.coverage:4.0%}"
        )


def add(errors: Errors, estimate: MemoryEstimate | None, tokens: float) -> None:
    found = estimate.kv_cache_tokens if estimate else None
    if found is None:
        return
    errors.signed.append(found.value / tokens - 1)
    errors.held += found.low <= tokens <= found.high


def per_token(all_of: list[Compared]) -> dict[str, Errors]:
    """Bytes per token by kind of cache, of rows that print bytes and tokens."""
    found: dict[str, Errors] = defaultdict(Errors)
    for one in all_of:
        truth = one.row.bytes_per_token
        if one.estimate is None or truth is None or one.row.unsaid:
            continue
        value = one.estimate.kv_bytes_per_token
        grouped = one.family in ("hybrid", "sliding")
        untold = grouped and one.row.version_class == "unknown"
        errors = found[one.family + (", version unknown" if untold else "")]
        errors.signed.append(value.value / truth - 1)
        errors.held += value.low * 0.995 <= truth <= value.high * 1.005
    return found


def tokens(
    all_of: list[Compared],
    key: Callable[[Compared], str],
    estimate: Callable[[Compared], MemoryEstimate | None] = lambda one: one.estimate,
) -> dict[str, Errors]:
    """Tokens of launches whose device, fraction and length are known."""
    found: dict[str, Errors] = defaultdict(Errors)
    for one in all_of:
        if one.row.is_known and one.row.tokens and one.estimate is not None:
            add(found[key(one)], estimate(one), one.row.tokens)
    return found


def fits(all_of: list[Compared]) -> dict[str, list[str]]:
    """Ids by verdict: right, wrong, open; started launches and clear refusals only. `misnamed`:
    what ran was another checkpoint than the record's name, so that no verdict can be checked."""
    found: dict[str, list[str]] = {"right": [], "wrong": [], "open": [], "misnamed": []}
    for one in all_of:
        row = one.row
        if one.estimate is None or not (row.started or row.outcome in CLEAR):
            continue
        if row.outcome == "weights_loaded_only" or not (row.line.keys() & {"gpu"}):
            continue
        if _misnamed(one):
            found["misnamed"].append(row.id)
            continue
        verdict = one.estimate.fits
        word = "open" if verdict is None else "right" if verdict == row.started else "wrong"
        found[word].append(row.id)
    return found


def is_clear(one: Compared) -> bool:
    """Whether the record holds all that the verdict depends on."""
    row = one.row
    return row.id_known and row.fraction_known and row.command_known and not row.unsaid


def _misnamed(one: Compared) -> bool:
    """Whether the record has the name of a model alone, and weights that are not that model's: in
    fewer bits, most often."""
    logged = one.row.weights_bytes
    if one.row.id_known or logged is None or one.estimate is None:
        return False
    return abs(one.estimate.weights_bytes.value / logged - 1) > MISNAMED_RATIO


def render(rows: tuple[Row, ...], title: str) -> str:
    """The table as text."""
    all_of = compared(rows)
    by_weights = [with_logged_weights(one) for one in all_of]
    lines = [title]

    def section(name: str, groups: dict[str, Errors]) -> None:
        lines.append(f"  {name}")
        lines.extend(f"    {key[:34]:34s} {groups[key].words()}" for key in sorted(groups))

    section("bytes per token, by cache", per_token(all_of))
    section("tokens, all", tokens(all_of, lambda one: "all"))
    whole = [one for one in all_of if one.row.command_known]
    section("tokens, whole command known", tokens(whole, lambda one: "all"))
    section("tokens, weights as printed", tokens(by_weights, lambda one: "all"))
    for name, group in (("model", _model), ("device", _device)):
        section(
            f"tokens, weights as printed, constants without the {name}",
            tokens(
                by_weights,
                lambda one: "all",
                lambda one, group=group: held_out(all_of, one, group),  # type: ignore[misc]
            ),
        )
    section("tokens, by engine and version", tokens(all_of, _version))
    section("tokens, by device", tokens(all_of, _device))
    section("tokens, by cache", tokens(all_of, lambda one: one.family))
    for name, some in (
        ("clear cases", [one for one in all_of if is_clear(one)]),
        ("the others", [one for one in all_of if not is_clear(one)]),
    ):
        lines.append(_verdicts(name, fits(some)))
    missing = [one for one in all_of if one.error]
    lines.append(f"  not answered: {len(missing)}")
    lines.extend(f"    {one.row.id}: {one.error[:110]}" for one in missing)
    return "\n".join(lines)


def _verdicts(name: str, found: dict[str, list[str]]) -> str:
    words = (
        f"  fits, {name}: {len(found['right'])} right, {len(found['open'])} open,"
        f" wrong: {' '.join(found['wrong']) or 'none'}"
    )
    misnamed = found["misnamed"]
    return words + (f"; another checkpoint than named: {' '.join(misnamed)}" if misnamed else "")


def _model(one: Compared) -> str:
    return one.row.model


def _device(one: Compared) -> str:
    return one.row.device


def _version(one: Compared) -> str:
    return f"{one.row.engine} {one.row.version_class}"
