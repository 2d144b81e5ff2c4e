"""Since the last good run: what changed is told, what always moves is not."""

from typing import Any

from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.compare import changes

from .hosts import facts
from .spoiled import H100, cards, states


def _bundle(*names: str, **changed: Any) -> Bundle:
    said = facts(**{**H100, **changed})
    hosts = tuple(said.model_copy(update={"host": name}) for name in names or ("a",))
    return Bundle(schema=1, llmdeploy="0.1.0", hosts=hosts)


def _told(now: Bundle) -> list[tuple[str, str, str]]:
    return [(c.fact, c.before, c.now) for c in changes(_bundle(), now)]


def test_an_equal_run_tells_nothing() -> None:
    assert _told(_bundle()) == []


def test_what_moves_by_itself_is_not_told() -> None:
    busy = states(2, temperature_c=77.0, power_w=600.0, busy_ratio=1.0)
    now = _bundle(load_1min=9.0, card_states=busy, accelerators=cards(2, memory_free_bytes=1))
    assert _told(now) == []


def test_a_new_value_is_told_with_its_place() -> None:
    now = _bundle(accelerators=cards(2, driver_version="575.1"), kernel="6.2.0")
    assert ("kernel", "6.1.0", "6.2.0") in _told(now)
    assert ("accelerators/1/driver_version", "570.195.03", "575.1") in _told(now)


def test_a_lost_card_is_told_as_a_whole() -> None:
    assert ("accelerators", "2 entries", "1 entries") in _told(_bundle(accelerators=cards(1)))


def test_a_slower_disk_is_told_and_a_faster_one_is_not() -> None:
    told = _told(_bundle(disk_read_bytes_per_s=5e8))
    assert told == [("disk_read_bytes_per_s", "1e+09", "5e+08 (50% of before)")]
    assert _told(_bundle(disk_read_bytes_per_s=2e9)) == []


def test_hosts_that_came_or_went_are_told() -> None:
    found = changes(_bundle("a", "b"), _bundle("b", "c"))
    assert {(c.host, c.now) for c in found} == {("a", "gone"), ("c", "new")}
