"""Text as tokens come: nothing lost, nothing doubled, stop strings never shown."""

import json

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdeploy.engine import text
from llmdeploy.engine.text import ChatTemplate, Detokenizer, StopFilter, Vocabulary
from llmdeploy.errors import InputError

from .tokenizers_at_hand import byte_fallback, byte_level, write_model

BYTES = Vocabulary(byte_level())
FALLBACK = Vocabulary(byte_fallback())
THE, RIVER = 257, 258
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def deltas(words: Vocabulary, ids: list[int], prompt: tuple[int, ...] = ()) -> list[str]:
    detokenizer = Detokenizer(words.decode, prompt)
    return [*(detokenizer.push([id]) for id in ids), detokenizer.rest()]


@given(TEXTS)
def test_the_pieces_of_any_text_joined_are_the_text(whole):
    assert "".join(deltas(BYTES, BYTES.encode(whole, special=False))) == whole


@given(st.lists(st.integers(min_value=0, max_value=BYTES.size - 1)))
def test_the_pieces_of_any_tokens_joined_are_what_all_tokens_decode_to(ids):
    assert "".join(deltas(BYTES, ids)) == BYTES.decode(ids)


@given(TEXTS, TEXTS)
def test_a_piece_never_shows_a_part_of_a_character(prompt, whole):
    pieces = deltas(
        BYTES, BYTES.encode(whole, special=False), tuple(BYTES.encode(prompt, special=False))
    )
    assert "".join(pieces) == whole
    if "\ufffd" not in whole:
        assert not any("\ufffd" in piece for piece in pieces)


@given(TEXTS, st.integers(min_value=1, max_value=7))
def test_how_many_tokens_come_at_once_changes_nothing(whole, step):
    ids = BYTES.encode(whole, special=False)
    detokenizer = Detokenizer(BYTES.decode)
    pieces = [detokenizer.push(ids[i : i + step]) for i in range(0, len(ids), step)]
    assert "".join(pieces) + detokenizer.rest() == whole


def test_a_word_after_the_prompt_keeps_its_leading_space():
    assert FALLBACK.decode([RIVER]) == "river"
    assert "".join(deltas(FALLBACK, [RIVER], prompt=(THE,))) == " river"


def test_bytes_that_make_a_character_show_once_it_is_whole():
    ids = [THE, 1 + 0xC3, 1 + 0xA9]
    assert deltas(FALLBACK, ids) == ["the", "", "é", ""]


@given(TEXTS)
def test_the_least_tokens_of_a_text_are_never_more_than_it_has(whole):
    assert BYTES.least_tokens(whole) <= len(BYTES.encode(whole, special=False))


STOPS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3)


@given(st.text("abc"), STOPS, st.lists(st.integers(min_value=1, max_value=5)))
def test_text_ends_before_the_stop_string_that_is_complete_first_however_it_is_cut(
    whole, stops, sizes
):
    ends = [(whole.find(s) + len(s), whole.find(s)) for s in stops if s in whole]
    expected = whole[: min(ends)[1]] if ends else whole
    filter_ = StopFilter(stops)
    shown, at = "", 0
    for size in [*sizes, len(whole) + 1]:
        if not filter_.stopped:
            shown += filter_.push(whole[at : at + size])
        at += size
    shown += filter_.rest()
    assert shown == expected
    assert filter_.stopped == bool(ends)


def test_text_that_only_looks_like_a_stop_string_is_shown_in_the_end():
    filter_ = StopFilter(["<end>"])
    assert [filter_.push("a <en"), filter_.push("try"), filter_.push("<e"), filter_.rest()] == [
        "a ", "<entry", "", "<e",
    ]  # fmt: skip


def test_a_tokens_bytes_are_those_of_its_part_of_a_character():
    whole = "é"
    ids = BYTES.encode(whole, special=False)
    assert b"".join(BYTES.token_bytes(id) for id in ids) == whole.encode()
    assert FALLBACK.token_bytes(1 + 0xC3) == b"\xc3"
    assert FALLBACK.token_bytes(THE) == b" the"


def test_generation_config_gives_the_defaults_and_names_what_is_not_applied():
    found = text.generation_defaults(
        json.dumps({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1})
    )
    assert (found.temperature, found.top_p, found.top_k) == (0.6, 0.9, 20)
    assert found.ignored == ("repetition_penalty",)


def test_an_empty_generation_config_gives_openais_defaults():
    found = text.generation_defaults("{}")
    assert (found.temperature, found.top_p, found.top_k, found.max_tokens) == (1.0, 1.0, None, None)
    assert found.ignored == ()


def test_a_template_may_refuse_messages():
    template = ChatTemplate("{{ raise_exception('only user') }}", {})
    with pytest.raises(jinja2.TemplateError, match="only user"):
        template.render([{"role": "user", "content": "hi"}], options={})


def test_a_template_cannot_reach_out_of_its_sandbox():
    template = ChatTemplate("{{ messages.__class__.__mro__ }}", {})
    with pytest.raises(jinja2.exceptions.SecurityError):
        template.render([], options={})


def test_a_template_sees_special_tokens_options_and_training_marks():
    source = "{{ bos_token }}{% generation %}{{ style }}{% endgeneration %}{{ messages|tojson }}"
    rendered = ChatTemplate(source, {"bos_token": "<s>"}).render(
        [{"role": "user", "content": "<é>"}], options={"style": "short"}
    )
    assert rendered == '<s>short[{"role": "user", "content": "<é>"}]'


def test_a_model_folder_gives_tokenizer_template_and_defaults(tmp_path):
    model = text.load(str(write_model(tmp_path)))
    assert (
        model.vocabulary.decode(model.vocabulary.encode("the river", special=True)) == "the river"
    )
    assert model.template.render([{"role": "user", "content": "hi"}], options={}) == (
        "<|user|>hi<|assistant|>"
    )
    assert model.defaults.top_k == 50


def test_a_folder_without_a_tokenizer_is_refused_with_its_path(tmp_path):
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        text.load(str(tmp_path))


@pytest.mark.end_to_end
def test_prompts_are_those_that_transformers_makes(model_folder):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(model_folder)
    ours = text.load(str(model_folder))
    for messages in (
        [{"role": "user", "content": "What is 2+2?"}],
        [{"role": "system", "content": "Brief!"}, {"role": "user", "content": "naïve 你好 🌍\n"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
         {"role": "user", "content": "<|im_end|> c"}],
    ):  # fmt: skip
        prompt = ours.template.render(messages, options={})
        ids = theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        assert ours.vocabulary.encode(prompt, special=False) == ids
        assert ours.vocabulary.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
