"""Deliberate faults: none without settings, and none before their time."""

import pytest

from llmdeploy.engine.drill import Drill
from llmdeploy.engine.messages import Token
from llmdeploy.engine.settings import DrillSettings


def faults(*, slowdown=1.0, error_ratio=0.0, garbage_ratio=0.0, after_requests=0):
    return Drill(
        DrillSettings(
            slowdown=slowdown,
            error_ratio=error_ratio,
            garbage_ratio=garbage_ratio,
            after_requests=after_requests,
        ),
        vocabulary=1000,
    )


def test_without_settings_nothing_is_changed():
    drill = Drill(None, vocabulary=10)
    assert not any(drill.fails_request() for _ in range(50))
    assert drill.replace(Token(id=3)) == Token(id=3)
    assert drill.pause_s(1.0) == 0


def test_the_first_requests_are_good():
    drill = faults(error_ratio=1.0, slowdown=3.0, garbage_ratio=1.0, after_requests=2)
    assert [drill.fails_request(), drill.fails_request()] == [False, False]
    assert drill.pause_s(1.0) == 0
    assert drill.replace(Token(id=3)).id == 3
    assert drill.fails_request()
    assert drill.pause_s(0.5) == pytest.approx(1.0)  # 3 x 0.5 s in all


def test_errors_come_at_their_ratio():
    drill = faults(error_ratio=0.05)
    failed = sum(drill.fails_request() for _ in range(4000))
    assert failed / 4000 == pytest.approx(0.05, abs=0.015)


def test_garbage_replaces_the_token_and_keeps_its_logprob():
    drill = faults(garbage_ratio=1.0)
    drill.fails_request()
    tokens = {drill.replace(Token(id=3, logprob=-0.5)).id for _ in range(50)}
    assert len(tokens) > 20
    assert drill.replace(Token(id=3, logprob=-0.5)).logprob == -0.5
