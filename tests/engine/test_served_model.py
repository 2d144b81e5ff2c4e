"""The whole engine with the real model, asked by OpenAI's own client."""

import concurrent.futures

import openai
import pytest

from .served import REAL, serving

pytestmark = pytest.mark.end_to_end

QUESTION = [{"role": "user", "content": "What is 2+2?"}]
STORY = [{"role": "user", "content": "Tell me a story about a river."}]


@pytest.fixture(scope="module")  # float32: bfloat16's near-ties fall differently in other batches
def engine(model_folder, tmp_path_factory):
    options = (
        "--model", str(model_folder), "--served-name", "smol", "--kv-cache-tokens", "4096",
        "--max-model-len", "512", "--max-num-seqs", "8", "--max-queue", "8", "--dtype", "float32",
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("engine")
    with serving(folder, *options, program=REAL) as served:
        yield served


@pytest.fixture(scope="module")
def client(engine):
    with engine.client() as client:
        yield client


def chat(client, messages, **more):
    return client.chat.completions.create(model="smol", messages=messages, **more)


def streamed(client, messages, **more):
    """Text, finish reason and usage of a stream."""
    text, finish, usage = "", None, None
    with chat(client, messages, stream=True, **more) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
    return text, finish, usage


def test_a_question_is_answered_streamed_or_not(client):
    whole = chat(client, QUESTION, temperature=0)
    assert "4" in whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "stop"
    text, finish, usage = streamed(client, QUESTION, temperature=0)
    assert (text, finish) == (whole.choices[0].message.content, "stop")
    assert usage == whole.usage


def test_a_text_is_continued(client):
    answer = client.completions.create(
        model="smol", prompt="The capital of France is", max_tokens=8, temperature=0
    )
    assert answer.choices[0].text.startswith(" ")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 8


def test_a_stop_string_is_not_shown(client):
    whole = chat(client, STORY, temperature=0, max_tokens=60).choices[0].message.content
    stop = whole[40:47]
    text, finish, _ = streamed(client, STORY, temperature=0, max_tokens=60, stop=[stop])
    assert (text, finish) == (whole[: whole.find(stop)], "stop")


def test_the_same_seed_gives_the_same_text_and_others_give_others(client):
    def draw(seed):
        answer = chat(client, STORY, temperature=1, seed=seed, max_tokens=24)
        return answer.choices[0].message.content

    assert draw(7) == draw(7)
    assert len({draw(seed) for seed in (1, 2, 3)}) == 3


def test_n_answers_differ_and_come_again_with_the_same_seed(client):
    def draw():
        answer = chat(client, STORY, temperature=1, seed=5, max_tokens=16, n=3)
        return [choice.message.content for choice in answer.choices]

    first = draw()
    assert len(set(first)) == 3
    assert draw() == first


def test_log_probabilities_add_up_to_the_text(client):
    answer = chat(client, QUESTION, temperature=0, logprobs=True, top_logprobs=3, max_tokens=12)
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(e.bytes) for e in content).decode() == answer.choices[0].message.content
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs) <= 0


def test_log_probabilities_of_a_text_answer_are_columns(client):
    answer = client.completions.create(
        model="smol", prompt="One, two,", max_tokens=5, temperature=0, logprobs=2
    )
    scores = answer.choices[0].logprobs
    assert "".join(scores.tokens) == answer.choices[0].text
    assert len(scores.token_logprobs) == len(scores.text_offset) == 5
    assert all(score <= 0 for score in scores.token_logprobs)


def test_a_banned_token_does_not_come(client):
    def ask(**more):
        answer = client.completions.create(
            model="smol", prompt=[100, 200, 300], max_tokens=6, temperature=0, logprobs=0, **more
        )
        return answer.choices[0].logprobs.tokens

    free = ask()
    forced = ask(logit_bias={"3000": 100})
    assert forced != free
    assert len(set(forced)) == 1
    assert set(ask(logit_bias={"3000": -100})).isdisjoint(set(forced) - set(free))


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(client):
    long = [{"role": "user", "content": "word " * 600}]
    with pytest.raises(openai.BadRequestError, match="needed at most 512") as caught:
        chat(client, long, max_tokens=10)
    assert caught.value.code == "context_length_exceeded"


def test_more_than_the_engine_takes_is_answered_429_and_the_rest_whole(engine, client):
    def one(number):
        try:
            answer = chat(client, STORY, temperature=1, seed=number, max_tokens=32)
        except openai.RateLimitError as error:
            return error.response.headers["retry-after"]
        return answer.choices[0].finish_reason

    with concurrent.futures.ThreadPoolExecutor(24) as threads:
        ends = list(threads.map(one, range(24)))
    assert set(ends) <= {"length", "stop", "1"}
    assert sum(end != "1" for end in ends) >= 16
    assert engine.metric("kv_used_ratio") <= 1


def test_a_stream_that_is_left_frees_its_place(engine, client):
    stream = chat(client, STORY, stream=True, max_tokens=400, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    engine.wait_for(lambda: engine.metric("running") == 0)
    assert engine.metric('requests_total{code="499",finish="cancelled"}') == 1


def test_ignored_ends_give_as_many_tokens_as_asked(client):
    answer = chat(client, QUESTION, temperature=0, max_tokens=40, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 40


def test_the_pages_tell_what_was_done(engine):
    ready = engine.get("/ready").json()
    assert (ready["phase"], ready["kv_cache_tokens"]) == ("ready", 4096)
    assert ready["weights_bytes"] > 200 * 10**6
    assert engine.get("/health").status_code == 200
    for name in ("ttft", "inter_token", "e2e", "queue"):
        assert engine.metric(f"{name}_seconds_count") > 0, name
    assert engine.metric("steps_total") > 0
    assert engine.metric("generated_tokens_total") > 0
    assert engine.metric("resident_bytes") > 300 * 10**6


def test_a_drain_lets_the_answer_end(engine, client):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        options = {"max_tokens": 64, "extra_body": {"ignore_eos": True}, "temperature": 0}
        running = threads.submit(streamed, client, STORY, **options)
        engine.wait_for(lambda: engine.metric("running") == 1)
        assert engine.terminate() == 0
        _, finish, usage = running.result()
    assert (finish, usage.completion_tokens) == ("length", 64)
