"""`python FILE keep SPEC` keeps one rank; `… pass SPEC` passes a model's files on;
`… stacks NAME PYTHON TARGET` writes down where a rank's threads stand; `… environment SPEC` makes a
Python environment."""

import sys

from llmdeploy.onhost import environment, keep, pass_on, stacks

USAGE = "usage: keep SPEC | pass SPEC | stacks NAME PYTHON TARGET | environment SPEC"


def main(argv: list[str]) -> int:
    """The exit code of the program that the arguments name."""
    if len(argv) == 2 and argv[0] == "keep":
        return keep.main(argv[1])
    if len(argv) == 2 and argv[0] == "pass":
        return pass_on.main(argv[1])
    if len(argv) == 4 and argv[0] == "stacks":
        return stacks.main(*argv[1:])
    if len(argv) == 2 and argv[0] == "environment":
        return environment.main(argv[1])
    print(USAGE, file=sys.stderr)
    return 2
