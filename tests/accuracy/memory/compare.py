"""Estimates beside what engines printed, also with constants refitted without a model or device."""

import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from llmdeploy.errors import LlmDeployError
from llmdeploy.estimate.answer import MemoryEstimate
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.account import Account, answer
from llmdeploy.estimate.memory.estimate import account
from llmdeploy.estimate.memory.join import joined
from llmdeploy.estimate.memory.spread import Term
from llmdeploy.estimate.parse import case_line
from llmdeploy.estimate.parse_case import resolve
from llmdeploy.estimate.parse_model import Models

from .rows import Row


class NoFiles:
    """A machine without files: only built-in shapes and given configs are found."""

    def read_from(self, path: str, *, offset_bytes: int, limit_bytes: int) -> bytes | None:
        return None

    def read(self, path: str) -> bytes | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row with its estimate; `error` says why there is none."""

    row: Row
    case: Case | None = None
    account: Account | None = None
    estimate: MemoryEstimate | None = None
    error: str = ""

    @property
    def family(self) -> str:
        """Kind of cache."""
        kinds = {part.kind for part in self.case.shape.cache} if self.case else set()
        if "state" in kinds:
            return "hybrid"
        if any(part.compression > 1 for part in self.case.shape.cache) if self.case else False:
            return "compressed"
        if "latent" in kinds:
            return "MLA"
        return "sliding" if kinds & {"sliding", "chunked"} else "plain"


def compared(rows: Iterable[Row]) -> list[Compared]:
    """Every row with its estimate."""
    models = Models(store="/nowhere", shell=NoFiles())  # type: ignore[arg-type]
    return [_compared(row, models) for row in rows]


def _compared(row: Row, models: Models) -> Compared:
    try:
        line = case_line(json.dumps(row.line), place=row.id)
        resolved = resolve(line, place=row.id, models=models)
    except LlmDeployError as error:
        return Compared(row=row, error=str(error))
    found = account(resolved.case)
    taken = answer(found)
    for other in resolved.other_cases:
        taken = joined(taken, answer(account(other)))
    return Compared(row=row, case=resolved.case, account=found, estimate=taken)


def with_logged_weights(one: Compared) -> Compared:
    """The same with the weights that the engine printed: what the rest of the account is worth."""
    row, found = one.row, one.account
    if found is None or row.weights_bytes is None or found.available is None:
        return one
    known = Term(row.weights_bytes, 0.0)
    changed = replace(found, weights=known, available=found.available + found.weights - known)
    return replace(one, account=changed, estimate=answer(changed))


def class_of(one: Compared) -> str:
    """Rows that share a fitted constant: what is left beside weights, activations and graphs."""
    found, case = one.account, one.case
    if found is None or case is None:
        return ""
    vendor = case.device.vendor if case.device else "nvidia"
    ranks = case.tensor_parallel * case.pipeline_parallel
    return f"{found.engine} {vendor} {'many' if ranks > 1 else 'one'}"


def held_out(
    all_of: list[Compared], one: Compared, group: Callable[[Compared], str]
) -> MemoryEstimate | None:
    """The estimate with its class's constant refitted on rows of every other group.

    The constant is the median of what these rows leave over; fewer than three leave it at zero.
    """
    found = one.account
    if found is None or found.available is None or found.cache is None:
        return one.estimate
    others = [
        left
        for other in all_of
        if class_of(other) == class_of(one) and group(other) != group(one)
        if (left := _left_bytes(other)) is not None
    ]
    own = [left for other in all_of if class_of(other) == class_of(one)
           if (left := _left_bytes(other)) is not None]  # fmt: skip
    if len(others) < 3 or len(own) < 3:
        return one.estimate
    moved = statistics.median(others) - statistics.median(own)
    return answer(replace(found, available=found.available + Term(moved, 0.0)))


def _left_bytes(one: Compared) -> float | None:
    """What the cache is larger than estimated, weights as printed."""
    known = with_logged_weights(one)
    row, found = one.row, known.account
    if found is None or found.available is None or row.cache_bytes is None or row.unsaid:
        return None
    if row.weights_bytes is None:
        return None
    return row.cache_bytes - found.available.value_bytes
