"""Reads the load of `llmdeploy simulate`: recorded requests, or a rate and two distributions."""

import pathlib
from collections.abc import Sequence
from typing import Annotated

import typer

from llmdeploy.cli.values import at_least
from llmdeploy.errors import InputError
from llmdeploy.estimate.case import Case
from llmdeploy.simulate import Lengths, as_listed, by_mean
from llmdeploy.simulate.arrivals import Traffic
from llmdeploy.simulate.replay import requests_of
from llmdeploy.simulate.request import Request

Requests = Annotated[
    str | None, typer.Option(help="CSV to replay: arrival_s,input_tokens,output_tokens")
]
MaxQueue = Annotated[
    int | None,
    typer.Option(callback=at_least(0), help="waiting requests a replica takes; default: any"),
]
LengthP95 = Annotated[float | None, typer.Option(help="95th percentile; default: 3 x the mean")]

P95_FACTOR = 3.0
"""95th percentile over the mean where none is given. Source: own choice: chat traffic."""
MOST_PEAK_FACTOR = 1000
"""As in a service's workload."""


def recorded(path: str) -> tuple[Request, ...]:
    """The requests in that CSV; InputError with the line where it is wrong."""
    file = pathlib.Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--requests {path}: found no readable file, needed a CSV of requests",
            fix="correct the path; the columns are arrival_s,input_tokens,output_tokens",
        ) from error
    return requests_of(text, place=str(file))


def lengths_of(
    past: Sequence[Request] | None,
    prompt: tuple[float | None, float | None],
    output: tuple[float | None, float | None],
) -> tuple[Lengths, Lengths]:
    """Distributions of prompts and outputs: those recorded, else by mean and 95th percentile."""
    if past is not None:
        return (
            as_listed([request.input_tokens for request in past]),
            as_listed([request.output_tokens for request in past]),
        )
    return _lengths("input", *prompt), _lengths("output", *output)


def traffic_of(
    rate_per_s: float | None, peak_factor: float, lengths: tuple[Lengths, Lengths], case: Case
) -> Traffic:
    """The traffic of a day; InputError where the rate is missing or the peak is below the mean."""
    if rate_per_s is None:
        raise InputError(
            "--request-rate: found none, needed the day's mean rate",
            fix="give --request-rate 100000/day, or --requests FILE.csv",
        )
    if not 1 <= peak_factor <= MOST_PEAK_FACTOR:
        raise InputError(
            f"--peak-factor: found {peak_factor:g}, needed 1 or more, at most {MOST_PEAK_FACTOR}",
            fix="give the peak's rate over the day's mean, like --peak-factor 3",
        )
    return Traffic(
        rate_per_s=rate_per_s,
        peak_factor=peak_factor,
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        most_tokens=case.max_model_len or case.shape.max_positions,
    )


def _lengths(name: str, mean: float | None, p95: float | None) -> Lengths:
    if mean is None:
        raise InputError(
            f"--{name}-tokens: found none, needed a mean",
            fix=f"give --{name}-tokens 1000 (and --{name}-p95 3000), or --requests FILE.csv",
        )
    if mean <= 0:
        raise InputError(
            f"--{name}-tokens: found {mean:g}, needed more than 0",
            fix=f"give the mean tokens of a request, like --{name}-tokens 1000",
        )
    if p95 is not None and p95 < mean:
        raise InputError(
            f"--{name}-p95: found {p95:g}, needed the mean or more: --{name}-tokens is {mean:g}",
            fix=f"give --{name}-p95 {mean:g} or more, or leave it out",
        )
    return by_mean(mean, p95=P95_FACTOR * mean if p95 is None else p95)
