"""Acceptance: a sound engine passes every check, and each fault fails its own check."""

import dataclasses
import random

import pytest

from llmdeploy.edge import Event
from llmdeploy.facts.finding import Status
from llmdeploy.observe.signatures import catalogue
from llmdeploy.plan.document import Promises
from llmdeploy.service import GoldenPrompt, ReleasePolicy
from llmdeploy.verdict.acceptance import AcceptanceRecord, accept
from llmdeploy.verdict.api_checks import stream_fault
from llmdeploy.verdict.speed import Speed, speed_findings
from llmdeploy.verdict.target import ScoredToken, Target
from llmdeploy.verdict.texts import agreement, entropy_bits, soundness

from ..fakes import FakeClock, FakeHttp, FakeShell
from .engine_double import WORDS, EngineDouble

LOG = "/runs/new/r0.log"
TARGET = Target(
    release="new",
    url="http://gateway",
    socket_path="/run/dark.sock",
    headers=(("x-llmdeploy-release", "new"),),
    served_name="chat",
    max_model_len=64,
    model_key="m1",
    promises=Promises(kv_cache_tokens=4096, max_concurrency=8, output_tokens_per_s=100.0),
    metrics_urls=("http://127.0.0.1:21000/metrics",),
    log_paths=(LOG,),
)
POLICY = ReleasePolicy(golden=(GoldenPrompt(prompt="What is 2+2?", expect="4"),))


def accepted(engine, *, old=None, old_record=None, shell=None, http=None, tick_s=0.001):
    clock = TickingClock(tick_s=tick_s)
    return accept(
        TARGET, POLICY, old=old, old_record=old_record,
        shell=shell or FakeShell(), http=http or engine.http(), clock=clock,
    )  # fmt: skip


class TickingClock(FakeClock):
    """Each reading is a little later, so that speeds are finite."""

    def __init__(self, tick_s):
        super().__init__()
        self.tick_s = tick_s

    def monotonic_s(self):
        self.time_s += self.tick_s
        return self.time_s


def statuses(record):
    return {f.check.removeprefix("accept."): f.status for f in record.findings}


def failed(record):
    return {name for name, status in statuses(record).items() if status == Status.FAIL}


def test_a_sound_engine_is_accepted_by_every_check():
    record = accepted(EngineDouble())
    assert record.accepted
    assert set(statuses(record)) == {
        "models", "completions", "streaming", "stop", "too_long", "bad_input", "golden", "garbage",
        "repeatable", "concurrent", "speed", "metrics", "memory", "log",
    }  # fmt: skip
    assert record.speed.output_tokens == 8 * 32


def test_the_record_survives_its_file():
    record = accepted(EngineDouble())
    assert AcceptanceRecord.model_validate_json(record.model_dump_json()) == record


def test_an_engine_that_is_not_there_fails_once_and_the_rest_is_skipped():
    record = accepted(None, http=FakeHttp())
    assert failed(record) == {"models"}
    assert statuses(record)["golden"] == Status.SKIP
    assert not record.accepted


def test_another_served_name_fails():
    assert "models" in failed(accepted(EngineDouble(served_name="other")))


def test_stop_strings_that_are_ignored_fail():
    assert failed(accepted(EngineDouble(ignores_stop=True))) == {"stop"}


@pytest.mark.parametrize(("turns", "bad"), [(2, set()), (3, {"stop"})])
def test_an_answer_that_takes_another_turn_is_asked_for_again(turns, bad):
    assert failed(accepted(EngineDouble(other_answers=turns))) == bad


def test_an_engine_that_dies_of_a_long_prompt_fails():
    assert "too_long" in failed(accepted(EngineDouble(crashes_on_long=True)))


@pytest.mark.parametrize(
    ("message", "bad"),
    [
        ("This model's maximum context length is 64 tokens. However, your prompt contains", set()),
        ("Requested token count exceeds the model's maximum context length of 64 tokens.", set()),
        ("1 validation error for request", {"too_long"}),
    ],
    ids=["vllm", "sglang", "another"],
)
def test_a_long_prompt_is_refused_in_the_engines_own_words(message, bad):
    error = {"message": message, "type": "BadRequestError", "code": 400}
    assert failed(accepted(EngineDouble(too_long=error))) == bad


def test_a_wrong_golden_answer_fails_with_what_was_said():
    record = accepted(EngineDouble(words=[w for w in WORDS if w != "4"]))
    assert failed(record) == {"golden"}
    golden = next(f for f in record.findings if f.check == "accept.golden")
    assert "'4' not in 'The sea is wide" in golden.found


def test_a_repeating_answer_is_garbage():
    assert "garbage" in failed(accepted(EngineDouble(words=["4"] * 17)))


def test_memory_that_grows_with_each_request_fails():
    record = accepted(EngineDouble(growth_bytes_per_request=16 * 2**20))
    assert failed(record) == {"memory"}


def test_a_fatal_line_in_the_log_fails_only_if_it_came_during_the_checks():
    fatal = next(s.match for s in catalogue() if s.id == "memory.cpu_allocator")
    before = FakeShell(files={LOG: f"{fatal}\n".encode()})
    assert statuses(accepted(EngineDouble(), shell=before))["log"] == Status.WARN

    during = FakeShell(files={LOG: b"start\n"})
    engine = EngineDouble()
    original = engine.metrics
    engine.metrics = lambda: during.files.update({LOG: f"start\n{fatal}\n".encode()}) or original()
    assert failed(accepted(engine, shell=during)) == {"log"}


def old_and_new(old_engine, new_engine, *, same_model):
    """A FakeHttp where the host's name says which of two engines answers."""
    new, old = new_engine.http(), old_engine.http()

    def pick(url):
        return old if url.startswith("http://old") else new

    http = FakeHttp(
        on_request=lambda m, url, body: pick(url).on_request(m, url, body),
        on_stream=lambda m, url, body: pick(url).on_stream(m, url, body),
    )
    key = "m1" if same_model else "m2"
    return http, dataclasses.replace(TARGET, release="old", url="http://old", model_key=key)


def test_the_same_model_must_answer_like_the_old_release():
    other = [*WORDS[:3], "deep", *WORDS[4:]]
    http, old = old_and_new(EngineDouble(words=other), EngineDouble(), same_model=True)
    assert failed(accepted(None, old=old, http=http)) == {"like_old"}


def test_answers_that_part_at_a_near_tie_are_the_same():
    other = EngineDouble(words=[*WORDS[:3], "deep", *WORDS[4:]], runner_up=-0.3)
    http, old = old_and_new(other, EngineDouble(), same_model=True)
    assert failed(accepted(None, old=old, http=http)) == set()


def test_another_model_may_answer_otherwise_and_the_distance_is_told():
    other = EngineDouble(words=["Yes", *WORDS], logprob=-0.6)
    http, old = old_and_new(other, EngineDouble(), same_model=False)
    record = accepted(None, old=old, http=http)
    assert record.accepted
    told = next(f for f in record.findings if f.check == "accept.like_old")
    assert "0 of 1 answers equal" in told.found


def test_an_old_release_that_does_not_answer_is_not_the_new_ones_fault():
    engine = EngineDouble()
    http = FakeHttp(
        on_request=lambda m, url, b: None if "//old" in url else engine.request(m, url, b),
        on_stream=engine.stream,
    )
    old = dataclasses.replace(TARGET, release="old", url="http://old")
    assert statuses(accepted(None, old=old, http=http))["like_old"] == Status.WARN


@pytest.mark.parametrize(
    ("output_tokens_per_s", "status"),
    [(100.0, Status.PASS), (50.0, Status.WARN), (15.0, Status.FAIL)],
)
def test_speed_is_held_to_the_promise(output_tokens_per_s, status):
    speed = Speed(requests=8, output_tokens=256, elapsed_s=256 / output_tokens_per_s)
    assert speed_findings(TARGET, speed, old=None)[0].status == status


def test_speed_is_held_to_the_old_releases_own_acceptance():
    speed = Speed(requests=8, output_tokens=256, elapsed_s=2.56)
    old = Speed(requests=8, output_tokens=256, elapsed_s=0.2)  # 1280 tokens/s: 100 are 7.8 %
    found = speed_findings(TARGET, speed, old=old)[1]
    assert found.status == Status.FAIL
    assert "7.81 % of 1280 of the old release" in found.found


def event(data, at_s):
    return Event(at_s=at_s, data=data)


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([], "without [DONE]"),
        ([event('{"content": "a"}', 0.0), event("[DONE]", 1.0)], "1 pieces"),
        ([event('{"content": "a"}', float(i)) for i in range(4)] + [event("[DONE]", 5.0)], "usage"),
        (
            [event('{"content": "a"}', 1.0)] * 4
            + [event('{"completion_tokens": 4}', 1.0), event("[DONE]", 1.0)],
            "holds the stream back",
        ),
    ],
)
def test_a_faulty_stream_is_described(events, fault):
    assert fault in stream_fault(tuple(events))


def test_random_tokens_and_control_characters_are_not_sound():
    rng = random.Random(5)
    noise = "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(200))
    assert "entropy" in soundness(noise)
    assert "printable" in soundness("abc\x00\x01\x02\x03 def")
    assert soundness("   ") == "empty answer, needed text"
    assert soundness("The answer to this classic math problem is 4.") is None


def test_entropy_of_two_equal_halves_is_one_bit():
    assert entropy_bits("abab") == pytest.approx(1.0)


def test_agreement_measures_the_common_beginning():
    def token(text, score):
        return ScoredToken(text=text, logprob=score, runner_up=-2.0)

    found = agreement(
        [token("a", -0.1), token("b", -0.2), token("c", -0.1)],
        [token("a", -0.3), token("b", -0.2), token("d", -1.9)],
    )
    assert found.equal_tokens == 2
    assert found.distance == pytest.approx(0.1)  # (0.2 + 0) / 2
    assert found.gap == pytest.approx(0.1)  # 2.0 - 1.9
