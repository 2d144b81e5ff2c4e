"""Requests from a CSV, with the line of every mistake."""

import pytest

from llmdeploy.errors import InputError
from llmdeploy.simulate.replay import requests_of


def test_requests_are_sorted_and_count_from_the_first() -> None:
    text = "id,arrival_s,input_tokens,output_tokens\na,107.5,20,3\nb,100,10,2\n\n"
    first, second = requests_of(text, place="past.csv")
    assert (first.arrival_s, first.input_tokens, first.output_tokens) == (0, 10, 2)
    assert (second.arrival_s, second.input_tokens, second.output_tokens) == (7.5, 20, 3)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "past.csv:1: found columns none, needed arrival_s, input_tokens, output_tokens"),
        ("arrival_s,input_tokens\n", "past.csv:1: found columns arrival_s, input_tokens, needed"),
        ("arrival_s,input_tokens,output_tokens\n", "found no request below the header"),
        ("arrival_s,input_tokens,output_tokens\n1,2\n", "past.csv:2: found 2 values, needed 3"),
        (
            "arrival_s,input_tokens,output_tokens\n0,1,1\nx,2,3\n",
            "past.csv:3: arrival_s: found 'x'",
        ),
        ("arrival_s,input_tokens,output_tokens\n-1,2,3\n", "needed seconds of 0 or more"),
        ("arrival_s,input_tokens,output_tokens\nnan,2,3\n", "found 'nan'"),
        ("arrival_s,input_tokens,output_tokens\n0,2.5,3\n", "input_tokens: found '2.5'"),
        ("arrival_s,input_tokens,output_tokens\n0,2,0\n", "output_tokens: found '0'"),
        (
            f"arrival_s,input_tokens,output_tokens\n0,{'9' * 200_000},1\n",
            "past.csv:2: cannot be read as CSV: field larger than field limit",
        ),
        ("9" * 200_000, "past.csv:1: cannot be read as CSV"),
    ],
)
def test_a_mistake_is_named_by_its_line(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        requests_of(text, place="past.csv")
    assert what in str(caught.value)
    assert caught.value.fix


def test_a_byte_order_mark_of_a_spreadsheet_is_no_part_of_the_first_column() -> None:
    (only,) = requests_of("\ufeffarrival_s,input_tokens,output_tokens\n1,2,3\n", place="past.csv")
    assert only.output_tokens == 3
