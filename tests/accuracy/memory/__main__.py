"""Prints the errors of memory estimates: `python -m tests.accuracy.memory`."""

import sys

from .rows import own, public
from .table import render


def main() -> None:
    if rows := public():
        sys.stdout.write(render(rows, f"{len(rows)} public launch logs") + "\n")
    sys.stdout.write(render(own(), "our own cases") + "\n")


main()
