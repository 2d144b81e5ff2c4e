"""Asks all hosts at once, each with its own deadline; a host that hangs delays no other."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import LlmDeployError
from llmdeploy.facts.bundle import Bundle, HostFacts, Unreached
from llmdeploy.facts.collect import Depth, Paths, ask

AT_ONCE = 32
"""Hosts asked at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One host, its Python, and how its shell is had (which reads the SSH configuration)."""

    host: str
    python: str
    shell: Callable[[], Shell]


class Phase(StrEnum):
    """How far a host is."""

    ASKED = "asked"
    ANSWERED = "answered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A host came to another phase."""

    host: str
    phase: Phase
    at_s: float
    """Monotonic seconds."""
    words: str = ""
    """Why it failed."""


def collect_all(
    asks: Sequence[Ask],
    paths: Paths,
    *,
    depth: Depth,
    timeout_s: float,
    report: Callable[[Progress], None],
    clock: Clock,
) -> Bundle:
    """Facts of the hosts that answered, and why each of the others did not, in the asked order.

    `report` is called from several threads.
    """

    def one(asked: Ask) -> HostFacts | Unreached:
        begun_s = clock.monotonic_s()
        report(Progress(host=asked.host, phase=Phase.ASKED, at_s=begun_s))
        try:
            facts = ask(
                asked.host,
                asked.python,
                paths,
                depth=depth,
                timeout_s=timeout_s,
                shell=asked.shell(),
                clock=clock,
            )
        except LlmDeployError as error:
            ended_s = clock.monotonic_s()
            words = str(error).removeprefix(f"{asked.host}: ")
            report(Progress(host=asked.host, phase=Phase.FAILED, at_s=ended_s, words=words))
            return Unreached(
                host=asked.host,
                collected_s=clock.now_s(),
                duration_s=ended_s - begun_s,
                found=words,
                fix=error.fix,
            )
        report(Progress(host=asked.host, phase=Phase.ANSWERED, at_s=clock.monotonic_s()))
        return facts

    pool = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="host")
    try:
        return _joined([future.result() for future in [pool.submit(one, asked) for asked in asks]])
    finally:  # after Ctrl-C no further host is asked, and closing the connections ends the others
        pool.shutdown(wait=False, cancel_futures=True)


def _joined(answers: Sequence[HostFacts | Unreached]) -> Bundle:
    return Bundle(
        schema=1,
        llmdeploy=version("llmdeploy"),
        hosts=tuple(answer for answer in answers if isinstance(answer, HostFacts)),
        unreached=tuple(answer for answer in answers if isinstance(answer, Unreached)),
    )
