"""Every signature finds its own line and no healthy one; the first cause is the cause."""

import json
import pathlib

import pytest
import yaml

from llmdeploy.observe.signatures import (
    Severity,
    catalogue,
    causes,
    diagnose,
    first_cause,
)
from llmdeploy.observe.signatures.literals import literals

BY_ID = {signature.id: signature for signature in catalogue()}

CASES = pathlib.Path(__file__).parents[1] / "cases" / "logs"
HEALTHY = {path.stem: path.read_text() for path in sorted((CASES / "healthy").iterdir())}
STARTED = HEALTHY["vllm_0_11_tp2"]
OTHERS = pathlib.Path(__file__).parents[3] / "shared" / "knowledge" / "failure_signatures.json"
POSITIVE = [(one.id, text) for one in catalogue() for text in (one.match, *one.variants)]
LINES = [one.id for one in catalogue() if one.repeats == 1 and one.silence_s is None]


@pytest.mark.parametrize(("name", "text"), POSITIVE)
def test_a_signature_finds_its_own_line_and_no_other_does(name, text):
    assert {c.signature.id for c in causes(text)} == {name}


@pytest.mark.parametrize("name", LINES)
def test_a_signature_finds_its_line_inside_the_engines_json_too(name):
    line = json.dumps({"level": "error", "event": "failed", "reason": BY_ID[name].match})
    assert name in [c.signature.id for c in causes(line)]


@pytest.mark.parametrize("name", BY_ID)
def test_the_words_that_a_pattern_needs_stand_on_every_line_it_finds(name):
    words = literals(BY_ID[name].pattern)
    for text in (BY_ID[name].match, *BY_ID[name].variants):
        assert words is None or any(word in text for word in words)


@pytest.mark.parametrize("name", BY_ID)
def test_a_signature_leaves_the_similar_line_alone(name):
    assert name not in [c.signature.id for c in causes(BY_ID[name].no_match)]


def test_there_are_more_than_a_hundred_and_their_names_differ():
    assert len(catalogue()) == len(BY_ID) > 100


@pytest.mark.parametrize("name", BY_ID)
def test_what_a_signature_explains_is_in_the_catalogue(name):
    assert set(BY_ID[name].explains) <= set(BY_ID)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_matches_nothing(name):
    assert causes(HEALTHY[name]) == ()
    assert diagnose(HEALTHY[name]) is None


@pytest.mark.skipif(not OTHERS.exists(), reason="the independent list of failures is not here")
def test_every_failure_of_an_independent_list_is_named_or_has_no_line():
    named = yaml.safe_load((CASES.parents[1] / "observe" / "known_failures.yaml").read_text())
    theirs = {one["id"]: one for one in json.loads(OTHERS.read_text())["signatures"]}
    assert set(named) == set(theirs)
    for id, ours in named.items():
        if ours is None:
            continue
        line = theirs[id]["sample_fragment"]
        text = "\n".join([line] * BY_ID[ours].repeats)
        assert {c.signature.id for c in causes(text)} == {ours}, id


def test_the_earliest_specific_line_wins_over_earlier_generic_ones():
    log = "\n".join(
        [
            BY_ID["host.disk_full"].match,
            BY_ID["weights.damaged"].match,
            BY_ID["comm.gloo"].match,
        ]
    )
    assert first_cause(log).signature.id == "weights.damaged"


def test_a_generic_line_is_the_cause_where_nothing_specific_is():
    log = STARTED + BY_ID["host.port_taken"].match
    cause = first_cause(log)
    assert cause.signature.id == "host.port_taken"
    assert cause.line_number == STARTED.count("\n") + 1


def test_what_healthy_ranks_say_too_is_the_cause_only_where_nothing_else_is():
    echo, own = BY_ID["comm.nccl_timeout"].match, BY_ID["memory.cuda"].match
    assert first_cause(f"{echo}\n{own}").signature.id == "memory.cuda"
    assert first_cause(echo).signature.id == "comm.nccl_timeout"


def test_a_line_that_must_repeat_counts_only_without_a_reset_between():
    frozen = BY_ID["engine.frozen"].match.splitlines()
    moved = "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s"
    assert causes("\n".join(frozen))[0].line_number == 3
    assert causes("\n".join([*frozen[:2], moved, frozen[2]])) == ()


def test_a_silence_is_measured_in_any_programs_stamps():
    began = "[2026-11-30 23:59:00 TP0] vLLM is using nccl==2.28.9"
    assert causes(f"{began}\n[2026-12-01 00:00:30 TP0] Load weight begin.") == ()
    assert len(causes(f"{began}\n[2026-12-01 00:02:00 TP0] Load weight begin.")) == 1
    assert causes(f"{began}\nno stamp") == ()


@pytest.mark.parametrize("name", [s.id for s in catalogue() if s.severity != Severity.FATAL])
def test_consequences_and_warnings_are_never_the_cause(name):
    assert first_cause(BY_ID[name].match) is None


def test_a_full_shared_memory_is_not_told_as_a_full_disk():
    assert first_cause(BY_ID["memory.shared"].match).signature.id == "memory.shared"


def test_the_diagnosis_names_the_cause_and_the_line():
    text = diagnose("ok\n" + BY_ID["host.module"].match)
    assert text == (
        "a Python package that the engine needs is missing or too old "
        "(log line 2: ModuleNotFoundError: No module named 'torch')"
    )
