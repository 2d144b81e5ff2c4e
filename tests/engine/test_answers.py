"""Answers in OpenAI's shapes, read back as JSON."""

import json

from hypothesis import given
from hypothesis import strategies as st

from llmdeploy.engine import answers
from llmdeploy.engine.answers import Answer, Usage, WholeChoice
from llmdeploy.engine.choice import Piece, Scored
from llmdeploy.engine.fields import ApiError
from llmdeploy.engine.messages import Token
from llmdeploy.engine.text import Vocabulary

from .tokenizers_at_hand import byte_level

WORDS = Vocabulary(byte_level())
USAGE = Usage(prompt_tokens=3, answer_tokens=2)
FIRST = WORDS.encode("a", special=False)[0]


def answer(kind, scores=False):
    return Answer(kind, id="x-1", created_s=5, model='smol"', scores=scores, words=WORDS)


def events(stream):
    lines = stream.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]


def test_a_chat_stream_opens_with_the_role_and_ends_with_finish_usage_and_done():
    chat = answer("chat")
    stream = chat.opening(0) + chat.piece(0, Piece(text="hi", finish="stop")) + chat.ending(USAGE)
    assert stream.endswith(b"\n\ndata: [DONE]\n\n")
    opening, text, end, usage = events(stream)
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text["choices"] == [
        {"index": 0, "delta": {"content": "hi"}, "logprobs": None, "finish_reason": None}
    ]
    assert end["choices"][0] == {
        "index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop",
    }  # fmt: skip
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    for event in (opening, text, end, usage):
        assert (event["id"], event["object"], event["created"], event["model"]) == (
            "x-1", "chat.completion.chunk", 5, 'smol"',
        )  # fmt: skip


def test_a_text_stream_has_text_and_finish_in_one_chunk():
    text = answer("text")
    stream = text.opening(1) + text.piece(1, Piece(text="hi", finish="length"))
    (event,) = events(stream)
    assert event["object"] == "text_completion"
    assert event["choices"] == [
        {"index": 1, "text": "hi", "logprobs": None, "finish_reason": "length"}
    ]


def test_a_piece_without_anything_new_sends_nothing_in_a_chat():
    assert answer("chat").piece(0, Piece(text="")) == b""


@given(st.text())
def test_any_text_survives_the_hand_made_chunk(text):
    (event,) = events(answer("text").piece(0, Piece(text=text)))
    assert event["choices"][0]["text"] == text


SCORED = Scored(token=Token(id=FIRST, logprob=-0.5, top=((FIRST, -0.5),)), text_offset=4)


def test_scores_of_a_chat_list_tokens_with_bytes_and_alternatives():
    (event,) = events(answer("chat", scores=True).piece(0, Piece(text="a", scored=(SCORED,))))
    entry = {"token": "a", "logprob": -0.5, "bytes": [97]}
    assert event["choices"][0]["logprobs"]["content"] == [{**entry, "top_logprobs": [entry]}]


def test_scores_of_a_text_answer_are_columns():
    choice = WholeChoice(text="a", scored=(SCORED,), finish="stop")
    whole = json.loads(answer("text", scores=True).whole([choice], USAGE))
    assert whole["choices"][0]["logprobs"] == {
        "tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}],
        "text_offset": [4],
    }  # fmt: skip


def test_a_whole_chat_answer_has_every_choice_and_the_usage():
    choices = [WholeChoice(text=t, scored=(), finish="stop") for t in ("a", "b")]
    whole = json.loads(answer("chat").whole(choices, USAGE))
    assert whole["object"] == "chat.completion"
    assert [c["message"]["content"] for c in whole["choices"]] == ["a", "b"]
    assert [c["index"] for c in whole["choices"]] == [0, 1]
    assert whole["choices"][0]["logprobs"] is None
    assert whole["usage"]["total_tokens"] == 5


def test_an_error_says_what_is_wrong_where_and_what_to_do():
    error = ApiError("n: found 0, needed 1", status=400, code="invalid_value", param="n", fix="do")
    assert json.loads(answers.error_body(error)) == {
        "error": {
            "message": "n: found 0, needed 1 (do)", "type": "invalid_request_error",
            "param": "n", "code": "invalid_value",
        }
    }  # fmt: skip
    assert events(answers.error_event(error))[0]["error"]["code"] == "invalid_value"


def test_models_name_their_context():
    (model,) = json.loads(answers.models_body(["m"], created_s=1, context_tokens=9))["data"]
    assert model == {
        "id": "m", "object": "model", "created": 1, "owned_by": "llmdeploy", "max_model_len": 9,
    }  # fmt: skip
