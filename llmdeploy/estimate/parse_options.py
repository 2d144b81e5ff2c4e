"""A case as typed on a command line, with units in the values, as the same CaseLine."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from llmdeploy.errors import InputError
from llmdeploy.estimate.parse import KEYS, CaseLine, case_line
from llmdeploy.units import parse_bytes, parse_rate_per_s, parse_ratio

PLACE = "the command line"
OPTION_OF = {
    "gpu_memory_bytes": "--gpu-memory",
    "request_rate_per_s": "--request-rate",
}
"""Options that are not spelled like their key: the unit stands in the value."""


def from_options(options: Mapping[str, object]) -> CaseLine:
    """The case of keys and typed values, None where an option was not given.

    InputError names the option. `80` without a unit is refused for bytes; a share is 90% or 0.9.
    """
    tree = {key: _read(key, value) for key, value in options.items() if value is not None}
    with naming_options():
        return case_line(json.dumps(tree), place=PLACE)


@contextmanager
def naming_options() -> Iterator[None]:
    """Turns an error about keys of the command line's case into one about its options."""
    try:
        yield
    except InputError as error:
        raise _for_options(error) from error


def option_of(key: str) -> str:
    """The option that fills a key of the case."""
    return OPTION_OF.get(key, f"--{key.replace('_', '-')}")


def _read(key: str, value: object) -> object:
    if not isinstance(value, str) or key not in _READERS:
        return value
    reader, fix = _READERS[key]
    try:
        return reader(value)
    except ValueError as error:
        raise InputError(f"{PLACE}: {option_of(key)}: {error}", fix=fix) from error


def _share(value: str) -> float:
    if value.strip().endswith("%"):
        return parse_ratio(value)
    try:
        return float(value)
    except ValueError as error:
        raise ValueError(f"found {value!r}, needed a share like 90% or 0.9") from error


_READERS: dict[str, tuple[Callable[[str], float], str]] = {
    "gpu_memory_bytes": (
        parse_bytes,
        "write the unit: --gpu-memory 80GiB (80 x 2^30 bytes) or 80GB (80 x 10^9)",
    ),
    "request_rate_per_s": (
        parse_rate_per_s,
        "write a positive rate with its unit: --request-rate 20/s or 100000/day",
    ),
    "memory_fraction": (_share, "write --memory-fraction 90% or 0.9"),
}


def _for_options(error: InputError) -> InputError:
    """The same error, naming options instead of keys."""
    what, fix = str(error), error.fix
    if what.startswith(f"{PLACE}: model: is missing"):
        what = f"{PLACE}: --model: is missing, needed a model or --batch FILE"
        fix = "add --model ORGANISATION/NAME as on Hugging Face, or the path of its config.json"
    head = re.match(rf"{PLACE}: ([a-z_]+):", what)
    if head is not None and head[1] in KEYS:
        what = what.replace(head[0], f"{PLACE}: {option_of(head[1])}:", 1)
    what, fix = (_KEY.sub(lambda found: option_of(found[0]), text) for text in (what, fix))
    fix = fix.replace(f" in {PLACE}", "").replace(", or its keys as --model-config", "")
    return InputError(what, fix=fix)


_KEY = re.compile(
    r"(?<![-\w])(?:" + "|".join(key for key in KEYS if "_" in key) + r")(?!\w)"
    r"|(?<=set )gpus(?= to)|(?<=change )[a-z]+(?= in the command line)"
)
"""Keys where they cannot be words of a sentence."""
