"""Cases from a file or a pipe, results to stdout, one line each."""

import pathlib
import sys
from collections.abc import Iterator, Mapping

from llmdeploy.errors import InputError
from llmdeploy.estimate.batch import answers
from llmdeploy.estimate.parse_model import Models
from llmdeploy.estimate.parse_options import PLACE, option_of


def answer_all(path: str, options: Mapping[str, object], models: Models) -> None:
    """Writes each line's result as soon as it is known; InputError where the file cannot be read
    or a case was given beside it."""
    _refuse_both(options)
    if path == "-":
        _write(answers(sys.stdin, place="stdin", models=models))
        return
    try:
        lines = pathlib.Path(path).expanduser().open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(
            f"--batch {path}: found no readable file: {error.strerror}, needed one case a line",
            fix='write lines such as {"model": "Qwen/Qwen3-8B", "gpu": "rtx4090"}',
        ) from error
    with lines:
        _write(answers(lines, place=path, models=models))


def _write(results: Iterator[str]) -> None:
    for text in results:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _refuse_both(options: Mapping[str, object]) -> None:
    given = [option_of(key) for key, value in options.items() if value is not None]
    if given:
        raise InputError(
            f"{PLACE}: found --batch and {', '.join(given)}, needed one of them",
            fix="write the values into the lines of the file, or leave --batch out",
        )
