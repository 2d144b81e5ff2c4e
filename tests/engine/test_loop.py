"""The loop over a pipe in this process: messages in, one message a step out, heartbeats."""

import multiprocessing
import threading
import time

import pytest

from llmdeploy.engine.drill import Drill
from llmdeploy.engine.loader import load
from llmdeploy.engine.loop import serve
from llmdeploy.engine.messages import Cancel, Generate, Heartbeat, Output, Outputs, Shutdown
from llmdeploy.engine.messages import Sampling as Settings
from llmdeploy.engine.settings import DrillSettings
from llmdeploy.engine.worker import start_batch

from .tiny_models import VOCABULARY, make_tiny, settings


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("tiny"))


def request(id: str, *prompt: int, max_tokens: int = 8) -> Generate:
    sampling = Settings(temperature=0, ignore_eos=True)
    return Generate(id=id, prompt=prompt, max_tokens=max_tokens, sampling=sampling)


def serve_all(model: str, messages, *, drill=None, batch_window_s=0.0, break_step=None):
    """Everything the loop said after these messages; `messages` may also be functions to call."""
    chosen = settings(model)
    faults = Drill(drill, vocabulary=VOCABULARY)
    batch = start_batch(load(chosen), chosen, drill=faults)
    if break_step is not None:
        break_step(batch)
    ours, theirs = multiprocessing.Pipe()
    loop = threading.Thread(
        target=serve, args=(batch, faults, theirs), kwargs={"batch_window_s": batch_window_s}
    )
    loop.start()
    said = []
    try:
        for message in messages:
            if callable(message):
                message(ours, said)
            else:
                ours.send(message)
    finally:
        ours.send(Shutdown())
        loop.join(60)
    assert not loop.is_alive()
    while ours.poll():
        said.append(ours.recv())
    return said


def until_finished(*ids: str):
    def wait(connection, said):
        while not all(any(o.finish for o in outputs(said, id)) for id in ids):
            assert connection.poll(60)
            said.append(connection.recv())

    return wait


def outputs(said, id: str) -> list[Output]:
    every = [o for message in said if isinstance(message, Outputs) for o in message.outputs]
    return [output for output in every if output.id == id]


def test_a_request_is_answered_token_by_token_and_counted(tiny):
    said = serve_all(tiny, [request("a", 5, 6, 7), until_finished("a")])
    answers = outputs(said, "a")
    assert len(answers) == 8
    assert answers[-1].finish == "length"
    assert [answer.finish for answer in answers[:-1]] == [None] * 7


def test_heartbeats_count_steps_and_tokens(tiny):
    def until_counted(connection, said):
        while not any(isinstance(m, Heartbeat) and m.generated_tokens == 8 for m in said):
            assert connection.poll(60)
            said.append(connection.recv())

    said = serve_all(tiny, [request("a", 5, 6, 7), until_finished("a"), until_counted])
    beat = next(m for m in reversed(said) if isinstance(m, Heartbeat))
    assert (beat.steps, beat.prompt_tokens, beat.generated_tokens) == (8, 3, 8)
    assert (beat.running, beat.waiting, beat.kv_used_tokens, beat.restarts) == (0, 0, 0, 0)


def test_a_refused_request_is_answered_at_once(tiny):
    said = serve_all(tiny, [request("a"), until_finished("a")])
    (answer,) = outputs(said, "a")
    assert answer.finish == "error"
    assert "0 tokens" in str(answer.error)


def test_a_cancelled_request_says_so_and_says_no_more(tiny):
    said = serve_all(
        tiny, [request("a", 5, max_tokens=400), Cancel(id="a"), Cancel(id="b"), until_finished("a")]
    )
    assert outputs(said, "a")[-1].finish == "cancelled"
    assert outputs(said, "b") == []


def test_the_batch_window_lets_requests_start_together(tiny):
    def later(connection, said):
        time.sleep(0.05)
        connection.send(request("b", 6))

    said = serve_all(tiny, [request("a", 5), later, until_finished("a", "b")], batch_window_s=0.5)
    steps = [message for message in said if isinstance(message, Outputs)]
    assert [len(step.outputs) for step in steps] == [2] * 8


def test_a_failing_step_ends_its_requests_and_the_next_is_answered(tiny):
    def break_step(batch):
        batch._processor._generation_step = lambda model: 1 / 0

    said = serve_all(
        tiny,
        [request("a", 5), until_finished("a"), request("b", 5), until_finished("b")],
        break_step=break_step,
    )
    (failed,) = outputs(said, "a")
    assert failed.finish == "error"
    assert "division by zero" in str(failed.error)
    assert outputs(said, "b")[-1].finish == "length"


def test_a_slowdown_makes_every_step_take_longer(tiny):
    def timed(drill):
        started_s = time.monotonic()
        warm, then = request("a", 5, max_tokens=2), request("b", 5, max_tokens=100)
        serve_all(tiny, [warm, then, until_finished("a", "b")], drill=drill)
        return time.monotonic() - started_s

    slow = DrillSettings(slowdown=8.0, error_ratio=0, garbage_ratio=0, after_requests=0)
    assert timed(slow) > 2 * timed(None)


def test_the_error_drill_answers_with_an_error(tiny):
    drill = DrillSettings(slowdown=1.0, error_ratio=1.0, garbage_ratio=0, after_requests=1)
    said = serve_all(
        tiny, [request("a", 5), request("b", 5), until_finished("a", "b")], drill=drill
    )
    assert outputs(said, "a")[-1].finish == "length"
    assert outputs(said, "b")[-1].error == "drill: this request was picked to fail"


def test_the_garbage_drill_changes_the_answer(tiny):
    messages = [request("a", 5, 6, max_tokens=30), until_finished("a")]
    drill = DrillSettings(slowdown=1.0, error_ratio=0, garbage_ratio=1.0, after_requests=0)
    right = [o.tokens for o in outputs(serve_all(tiny, messages), "a")]
    wrong = [o.tokens for o in outputs(serve_all(tiny, messages, drill=drill), "a")]
    assert len(wrong) == len(right)
    assert wrong != right


def test_a_closed_pipe_ends_the_loop(tiny):
    chosen = settings(tiny)
    batch = start_batch(load(chosen), chosen, drill=Drill(None, vocabulary=VOCABULARY))
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    serve(batch, Drill(None, vocabulary=VOCABULARY), theirs, batch_window_s=0)
    assert batch.idle
