"""`python FILE keep SPEC` keeps one rank; `python FILE pass SPEC` passes a model's files on."""

import sys

from llmdeploy.onhost import keep, pass_on

USAGE = "usage: keep SPEC | pass SPEC"


def main(argv: list[str]) -> int:
    """The exit code of the program that the arguments name."""
    programs = {"keep": keep.main, "pass": pass_on.main}
    if len(argv) != 2 or argv[0] not in programs:
        print(USAGE, file=sys.stderr)
        return 2
    return programs[argv[0]](argv[1])
