"""Who has the bad pairs in common."""

from llmdeploy.facts.active.blame import Pair, blame
from llmdeploy.facts.active.pairs import rounds

HOSTS = ("a", "b", "c", "d")
TRIED = [(one, other) for one in HOSTS for other in HOSTS if one != other]


def _said(bad: set[Pair], tried: list[Pair] = TRIED) -> list[tuple[str, str]]:
    return [(found.subject, found.way) for found in blame(bad, tried)]


def test_a_host_that_none_reaches_is_named_once() -> None:
    assert _said({("a", "c"), ("b", "c"), ("d", "c")}) == [("c", "into")]


def test_a_host_that_reaches_none_is_named_once() -> None:
    assert _said({("b", "a"), ("b", "c"), ("b", "d")}) == [("b", "out of")]


def test_a_host_bad_both_ways_is_one_fault() -> None:
    assert _said({pair for pair in TRIED if "d" in pair}) == [("d", "both ways")]


def test_one_bad_pair_among_good_ones_names_its_target() -> None:
    (found,) = blame({("a", "b")}, TRIED)
    assert (found.subject, found.peers) == ("b", ("a",))


def test_two_faults_are_two() -> None:
    into_c = {("a", "c"), ("b", "c"), ("d", "c")}
    assert _said(into_c | {("a", "b")}) == [("c", "into"), ("b", "into")]


def test_of_two_hosts_bad_both_ways_neither_is_guessed() -> None:
    two = [("a", "b"), ("b", "a")]
    assert _said(set(two), two) == [("a, b", "both ways")]


def test_nothing_bad_names_nobody() -> None:
    assert blame(set(), TRIED) == ()


def test_few_hosts_meet_in_all_pairs_and_nobody_twice_in_a_round() -> None:
    for count in range(2, 9):
        hosts = [f"h{number}" for number in range(count)]
        turns = rounds(hosts)
        pairs = [frozenset(pair) for turn in turns for pair in turn]
        assert len(set(pairs)) == len(pairs) == count * (count - 1) // 2
        for turn in turns:
            busy = [host for pair in turn for host in pair]
            assert len(set(busy)) == len(busy)


def test_many_hosts_meet_few_others_each_and_nobody_is_left_out() -> None:
    hosts = [f"h{number}" for number in range(256)]
    turns = rounds(hosts)
    pairs = [pair for turn in turns for pair in turn]
    assert {host for pair in pairs for host in pair} == set(hosts)
    assert len(pairs) <= 2 * len(hosts)
    assert len(turns) <= 8
    assert rounds(hosts) == turns
