"""Prints the errors of counted weights: `python -m tests.accuracy.weights`."""

import sys

from .rows import own, public
from .table import render


def main() -> None:
    rows, unknown = public()
    if rows:
        sys.stdout.write(render(rows, f"{len(rows)} public launch logs") + "\n")
        sys.stdout.write(f"unknown models: {', '.join(sorted(set(unknown)))}\n\n")
    sys.stdout.write(render(own(), "our own cases") + "\n")


main()
