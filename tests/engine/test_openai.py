"""Requests: what is understood, and a 400 with place and both values for everything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdeploy.engine import openai
from llmdeploy.engine.fields import ApiError
from llmdeploy.engine.messages import Sampling
from llmdeploy.engine.openai import Limits
from llmdeploy.engine.text import GenerationDefaults

LIMITS = Limits(
    served_name="smol",
    vocabulary=1000,
    most_in_flight=40,
    defaults=GenerationDefaults(temperature=0.7, top_p=0.9, top_k=20, max_tokens=64),
)
CHAT = {"model": "smol", "messages": [{"role": "user", "content": "hi"}]}
TEXT = {"model": "smol", "prompt": "hi"}


def chat(**more):
    return openai.parse(json.dumps({**CHAT, **more}).encode(), "chat", limits=LIMITS)


def text(**more):
    return openai.parse(json.dumps({**TEXT, **more}).encode(), "text", limits=LIMITS)


def refused(call, **more):
    with pytest.raises(ApiError) as caught:
        call(**more)
    return caught.value


def test_what_a_chat_request_leaves_open_comes_from_generation_config():
    asked = chat()
    assert asked.sampling == Sampling(temperature=0.7, top_p=0.9, top_k=20)
    assert (asked.max_tokens, asked.choices, asked.stream, asked.seed) == (64, 1, False, None)


def test_a_text_request_gets_sixteen_tokens_where_it_asks_for_none():
    assert text().max_tokens == 16


def test_every_sampling_parameter_arrives():
    asked = chat(
        temperature=0, top_p=0.5, top_k=3, presence_penalty=1, frequency_penalty=-1,
        logit_bias={"5": -100}, seed=7, n=3, stop=["a", "b"], logprobs=True, top_logprobs=2,
        ignore_eos=True, max_tokens=5,
    )  # fmt: skip
    assert asked.sampling == Sampling(
        temperature=0, top_p=0.5, top_k=3, presence_penalty=1, frequency_penalty=-1,
        logit_bias=((5, -100.0),), top_logprobs=2, ignore_eos=True,
    )  # fmt: skip
    assert (asked.seed, asked.choices, asked.stops, asked.max_tokens) == (7, 3, ("a", "b"), 5)


def test_one_stop_string_may_stand_alone():
    assert chat(stop="END").stops == ("END",)


def test_max_completion_tokens_goes_before_max_tokens():
    assert chat(max_completion_tokens=9, max_tokens=5).max_tokens == 9


def test_null_means_the_default():
    names = ("temperature", "stop", "seed", "n", "max_tokens", "logit_bias", "stream", "top_p")
    assert chat(**dict.fromkeys(names)) == chat()


def test_a_disabled_top_k_is_none():
    assert chat(top_k=-1).sampling.top_k is None
    assert chat(top_k=0).sampling.top_k is None


def test_logprobs_of_both_shapes_ask_for_alternatives():
    assert chat(logprobs=True).sampling.top_logprobs == 0
    assert chat(logprobs=False).sampling.top_logprobs is None
    assert text(logprobs=3).sampling.top_logprobs == 3
    assert text().sampling.top_logprobs is None


def test_text_parts_of_a_message_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = chat(messages=[{"role": "developer", "content": parts}])
    assert asked.messages == ({"role": "system", "content": "a\nb"},)


def test_a_prompt_may_be_texts_or_token_ids():
    assert text(prompt="a").prompts == ("a",)
    assert text(prompt=["a", "b"]).prompts == ("a", "b")
    assert text(prompt=[1, 2]).prompts == ((1, 2),)
    assert text(prompt=[[1, 2], [3]]).prompts == ((1, 2), (3,))


def test_harmless_parameters_are_taken():
    asked = chat(
        user="me", metadata={}, store=False, tools=[], tool_choice="none", stream=True,
        response_format={"type": "text"}, stream_options={"include_usage": True},
    )  # fmt: skip
    assert asked.stream


@pytest.mark.parametrize(
    ("call", "values", "param"),
    [
        (chat, {"max_tokens": -5}, "max_tokens"),
        (chat, {"max_tokens": 0}, "max_tokens"),
        (chat, {"max_tokens": 1.5}, "max_tokens"),
        (chat, {"max_tokens": True}, "max_tokens"),
        (chat, {"temperature": 2.5}, "temperature"),
        (chat, {"temperature": "hot"}, "temperature"),
        (chat, {"temperature": float("nan")}, "temperature"),
        (chat, {"top_p": 0}, "top_p"),
        (chat, {"top_p": 1.1}, "top_p"),
        (chat, {"top_k": -2}, "top_k"),
        (chat, {"n": 0}, "n"),
        (chat, {"n": 41}, "n"),
        (chat, {"seed": "x"}, "seed"),
        (chat, {"seed": 2**63}, "seed"),
        (chat, {"stop": ""}, "stop"),
        (chat, {"stop": [1]}, "stop"),
        (chat, {"stop": ["a"] * 17}, "stop"),
        (chat, {"stream": "yes"}, "stream"),
        (chat, {"stream_options": []}, "stream_options"),
        (chat, {"presence_penalty": 3}, "presence_penalty"),
        (chat, {"frequency_penalty": -3}, "frequency_penalty"),
        (chat, {"logit_bias": []}, "logit_bias"),
        (chat, {"logit_bias": {"1000": 1}}, "logit_bias"),
        (chat, {"logit_bias": {"x": 1}}, "logit_bias"),
        (chat, {"logit_bias": {"1": 101}}, "logit_bias.1"),
        (chat, {"logit_bias": {"1" * 5000: 1}}, "logit_bias"),
        (chat, {"logprobs": 1}, "logprobs"),
        (chat, {"top_logprobs": 2}, "logprobs"),
        (chat, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (chat, {"messages": []}, "messages"),
        (chat, {"messages": "hi"}, "messages"),
        (chat, {"messages": ["hi"]}, "messages[0]"),
        (chat, {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        (chat, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (chat, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content[0]"),
        (chat, {"chat_template_kwargs": 1}, "chat_template_kwargs"),
        (text, {"prompt": None}, "prompt"),
        (text, {"prompt": []}, "prompt"),
        (text, {"prompt": [1, 1000]}, "prompt"),
        (text, {"prompt": [[1], [-1]]}, "prompt[1]"),
        (text, {"prompt": [True]}, "prompt[0]"),
        (text, {"prompt": 5}, "prompt"),
        (text, {"prompt": ["a"] * 41}, "prompt"),
        (text, {"logprobs": 21}, "logprobs"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_place_what_was_found_and_what_is_needed(
    call, values, param
):
    error = refused(call, **values)
    assert (error.status, error.param) == (400, param)
    assert "found " in str(error)
    assert "needed " in str(error)
    assert error.code in ("invalid_value", "invalid_type", "missing_required_parameter")


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (chat, {"tools": [{}]}),
        (chat, {"functions": [{}]}),
        (chat, {"tool_choice": "required"}),
        (chat, {"response_format": {"type": "json_object"}}),
        (chat, {"modalities": ["audio"]}),
        (chat, {"audio": {}}),
        (text, {"echo": True}),
        (text, {"best_of": 3}),
        (text, {"suffix": "end"}),
    ],
)
def test_what_the_engine_does_not_do_is_refused_by_name(call, values):
    error = refused(call, **values)
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", *values)


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    error = refused(chat, temperture=0.5)
    assert (error.status, error.code, error.param) == (400, "unknown_parameter", "temperture")
    assert error.fix == "rename it to temperature"


def test_another_model_is_not_found():
    error = refused(chat, model="gpt-4o")
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "'gpt-4o'" in str(error)
    assert "'smol'" in str(error)


def test_a_request_without_model_is_refused():
    assert refused(chat, model=None).code == "missing_required_parameter"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"model": "\\ud800"}', "invalid_json"),
        (b"1" * 5000, "invalid_json"),
        (b"[]", "invalid_type"),
        (b"null", "invalid_type"),
    ],
)
def test_what_is_no_json_object_is_refused(body, code):
    with pytest.raises(ApiError) as caught:
        openai.parse(body, "chat", limits=LIMITS)
    assert (caught.value.status, caught.value.code) == (400, code)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(sorted(openai._CHAT_KEYS - {"model"}))


def outcome(values):
    try:
        return "understood" if chat(**values).sampling.temperature <= 2 else "too hot"
    except ApiError as error:
        return error.status


@given(st.dictionaries(KEYS, JSON))
def test_whatever_stands_in_the_fields_is_understood_or_refused(values):
    assert outcome(values) in ("understood", 400)


def test_an_answer_may_fill_the_context():
    assert openai.answer_tokens(100, chat(max_tokens=28), context_tokens=128) == 28


def test_an_answer_without_max_tokens_gets_what_is_left():
    limits = Limits(
        served_name="smol", vocabulary=9, most_in_flight=1, defaults=GenerationDefaults()
    )
    asked = openai.parse(json.dumps(CHAT).encode(), "chat", limits=limits)
    assert openai.answer_tokens(100, asked, context_tokens=128) == 28


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "shown", "fix"),
    [
        (100, 29, "129 together, needed at most 128", "set max_tokens to 28"),
        (128, 1, "129 together, needed at most 128", "shorten the prompt"),
        (500, 1, "501 together, needed at most 128", "shorten the prompt"),
    ],
)
def test_a_request_beyond_the_context_is_refused_with_both_numbers(
    prompt_tokens, max_tokens, shown, fix
):
    with pytest.raises(ApiError) as caught:
        openai.answer_tokens(prompt_tokens, chat(max_tokens=max_tokens), context_tokens=128)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    assert shown in str(caught.value)
    assert caught.value.fix.startswith(fix)


def test_an_empty_prompt_is_refused():
    with pytest.raises(ApiError, match="needed at least one token"):
        openai.answer_tokens(0, text(), context_tokens=128)
