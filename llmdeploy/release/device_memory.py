"""Memory of NVIDIA cards before a release starts, and that it is back once the release is gone."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from llmdeploy.document import Document, parse
from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.plan.document import Plan
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Site
from llmdeploy.release.state import ReleaseState
from llmdeploy.release.together import together
from llmdeploy.units import show_bytes

ASK = """command -v nvidia-smi >/dev/null 2>&1 || exit 0
nvidia-smi --query-gpu=uuid,index,memory.used --format=csv,noheader,nounits || exit 1
nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits || exit 1"""
"""Cards and what processes hold of them; nothing where the host has no such tool."""
ASK_TIMEOUT_S = 30.0
"""Without persistence mode the driver is loaded for each look. Source: own choice."""
TOLERANCE_BYTES = 2**28
"""What a driver may take more than before. Source: own choice: below any engine's share."""
PATIENCE_S, POLL_S = 30.0, 1.0
"""How long the driver may take to give back what ended processes had. Source: own choice."""


class Card(Document):
    """One card at one look."""

    uuid: str
    index: str
    used_bytes: int
    held_bytes: int
    """By processes that run: releases beside this one come and go."""

    @property
    def stray_bytes(self) -> int:
        """In use, by no process that runs."""
        return max(0, self.used_bytes - self.held_bytes)


class Baseline(Document):
    """The cards of one host before a release was started there (devices.json)."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A host of the release."""

    name: str
    layout: ServiceLayout
    shell: Shell


def note(plan: Plan, *, site: Site) -> None:
    """Each host of the plan's replicas on such cards keeps what its cards hold now."""
    names = {
        host
        for replica in plan.replicas
        if replica.serve.device == "cuda"
        for host in ({member.host for member in replica.members or ()} or {replica.host})
    }
    places = [place for place in _places(site) if place.name in names or not site.stations]

    def one(place: _Place) -> None:
        cards = _cards(place)
        if cards:
            text = Baseline(schema=1, cards=cards).model_dump_json(by_alias=True)
            place.shell.write(_path(place, plan.id), text.encode())

    together(one, places if names else [])


def check_back(release: ReleaseState, *, site: Site) -> None:
    """Refused naming host and card where memory is in use that no process has, more than before.

    The release's processes are gone. Asks nothing where nothing was kept at its start.
    """
    held = [words for words in together(lambda p: _held(p, release.id, site.clock), _places(site))
            if words is not None]  # fmt: skip
    if held:
        raise Refused(
            f"release {release.id}: {'; '.join(held)}",
            fix="see who holds it: nvidia-smi, fuser -v /dev/nvidia*; where nobody does and no "
            "other program needs the card: nvidia-smi --gpu-reset -i CARD",
        )


def parse_cards(text: str) -> tuple[Card, ...]:
    """The cards in what ASK printed; what is not told (`[N/A]`) counts as none."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 3 and row[0].startswith("GPU-")]
    cards: dict[str, tuple[str, int]] = {}
    held: dict[str, int] = {}
    for uuid, second, third in rows:
        size_bytes = int(third) * 2**20 if third.isdigit() else 0
        if uuid in cards:
            held[uuid] = held.get(uuid, 0) + size_bytes
        else:
            cards[uuid] = (second, size_bytes)
    return tuple(
        Card(uuid=uuid, index=index, used_bytes=used_bytes, held_bytes=held.get(uuid, 0))
        for uuid, (index, used_bytes) in cards.items()
    )


def _held(place: _Place, release_id: str, clock: Clock) -> str | None:
    """In words what is not back; None where all is, and then nothing is kept any more."""
    path = _path(place, release_id)
    try:
        content = place.shell.read(path)
        if content is None:
            return None
        before = {one.uuid: one for one in parse(content.decode(), Baseline, place=path).cards}
        deadline_s = clock.monotonic_s() + PATIENCE_S
        while words := _words(place, before, _cards(place)):
            if clock.monotonic_s() > deadline_s:
                return words
            clock.sleep(POLL_S)
        place.shell.remove(path)
    except (Refused, Unreachable) as error:
        return f"{error}: whether its cards' memory is back is not known"
    return None


def _words(place: _Place, before: dict[str, Card], now: tuple[Card, ...]) -> str:
    """Empty where every card is back."""
    found = []
    for card in now:
        had_bytes = before[card.uuid].stray_bytes if card.uuid in before else card.stray_bytes
        if card.stray_bytes > had_bytes + TOLERANCE_BYTES:
            found.append(
                f"card {card.index} has {show_bytes(card.stray_bytes)} in use by no process, "
                f"needed the {show_bytes(had_bytes)} of before its start (at most "
                f"{show_bytes(TOLERANCE_BYTES)} more)"
            )
    lost = sorted(one.index for uuid, one in before.items() if uuid not in {c.uuid for c in now})
    if lost:
        found.append(f"nvidia-smi no longer shows card {', '.join(lost)}")
    return f"{place.name}: {', '.join(found)}" if found else ""


def _cards(place: _Place) -> tuple[Card, ...]:
    done = place.shell.run(("sh", "-c", ASK), timeout_s=ASK_TIMEOUT_S)
    if done.exit_code != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise Refused(
            f"{place.name}: nvidia-smi said {said[:200]!r}, needed the memory of its cards",
            fix=f"see what ails the cards of {place.name}: llmdeploy preflight",
        )
    return parse_cards(done.stdout)


def _places(site: Site) -> list[_Place]:
    if site.stations:
        return [_Place(name=one.name, layout=one.layout, shell=one.shell) for one in site.stations]
    return [_Place(name="local", layout=site.layout, shell=site.shell)]


def _path(place: _Place, release_id: str) -> str:
    return f"{place.layout.run(release_id)}/devices.json"
