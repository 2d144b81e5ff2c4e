"""One answer: text, scores and end from a worker's outputs."""

from hypothesis import given
from hypothesis import strategies as st

from llmdeploy.engine.choice import Choice
from llmdeploy.engine.messages import Output, Token
from llmdeploy.engine.text import Vocabulary

from .tokenizers_at_hand import byte_level

WORDS = Vocabulary(byte_level())


def run(text, *, stops=(), finish="stop", scores=False, step=1):
    choice = Choice(WORDS.decode, prompt=[], stops=stops, scores=scores)
    ids = WORDS.encode(text, special=False)
    parts = [ids[i : i + step] for i in range(0, len(ids), step)] or [[]]
    pieces = []
    for number, part in enumerate(parts, start=1):
        tokens = tuple(Token(id=id, logprob=-1.0) for id in part)
        last = finish if number == len(parts) else None
        pieces.append(choice.push(Output(id="0", tokens=tokens, finish=last)))
    return choice, pieces


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(min_value=1, max_value=5))
def test_the_pieces_joined_are_the_answer(text, step):
    _, pieces = run(text, step=step)
    assert "".join(piece.text for piece in pieces) == text
    assert pieces[-1].finish == "stop"


@given(st.text("the stop"), st.sampled_from(["t", "st", "top", "e s", "stop"]))
def test_nothing_of_or_after_a_stop_string_is_shown(text, stop):
    choice, pieces = run(text, stops=[stop], finish="length")
    assert "".join(piece.text for piece in pieces) == text.split(stop)[0]
    assert choice.finish == ("stop" if stop in text else "length")
    assert choice.cut == (stop in text)


def test_outputs_after_a_stop_string_add_nothing():
    choice, _ = run("a stop here", stops=["stop"])
    tokens = choice.tokens
    late = choice.push(Output(id="0", tokens=(Token(id=5),)))
    assert (late.text, late.finish, choice.tokens) == ("", None, tokens)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(1, 4))
def test_every_token_is_scored_once_and_in_order(text, step):
    ids = WORDS.encode(text, special=False)
    _, pieces = run(text, scores=True, step=step)
    assert [one.token.id for piece in pieces for one in piece.scored] == ids


def test_scores_say_where_a_tokens_text_begins_and_end_with_the_text():
    _, pieces = run("the river and a stop", stops=[" and"], scores=True)
    scored = [one for piece in pieces for one in piece.scored]
    shown = "".join(piece.text for piece in pieces)
    assert shown == "the river"
    assert scored[0].text_offset == 0
    assert all(one.text_offset < len(shown) for one in scored)


def test_a_broken_character_at_the_end_shows_as_replacement():
    choice = Choice(WORDS.decode, prompt=[], stops=(), scores=False)
    first_byte = WORDS.encode("é", special=False)[0]
    half = Output(id="0", tokens=(Token(id=first_byte),), finish="length")
    if WORDS.token_bytes(first_byte) == b"\xc3":
        assert choice.push(half).text == "\ufffd"
    else:
        assert choice.push(half).text == "é"
