"""Sent to the host's Python (3.8 or newer): runs the probe's two programs in one process.

    python -c PROGRAM MARK FOLDER CERTIFICATE KEY MODEL_FOLDER MEASURE

Starting Python twice costs more than either program in a quick probe. What stands between @ is
replaced by the other files' texts. The sections' marks are printed between the two.
"""

import _signal  # type: ignore[import-not-found]  # `signal` imports enum, which nothing here needs
import sys
import time

RUNTIME_LIMIT_S = 20
IMPORTS_LIMIT_S = 60
"""Each part's own limit: the kernel ends the process with SIGALRM."""
TEXTS = {
    "show": "@SHOW@", "ports": "@PORTS@", "runtime": "@RUNTIME@", "imports": "@IMPORTS@",
    "there": "@THERE@",
}  # fmt: skip


def run(name: str) -> None:
    """One program, as a module of the package that it is written in."""
    module = type(sys)(f"llmdeploy.facts.probe_{name}")
    sys.modules[module.__name__] = module
    exec(TEXTS[name], module.__dict__)


def main() -> None:
    mark, *words = sys.argv[1:]
    run("show")
    _signal.alarm(RUNTIME_LIMIT_S)
    sys.argv[1:] = words[:3]
    if words[0] != "-":
        run("ports")
        run("runtime")
        at_s = int(time.time())  # noqa: TID251  # the host's own
        between = f"\n{mark}end 0\n{mark}begin imports {at_s} {sys.executable}"
        print(between, flush=True)  # noqa: T201  # its answer
    _signal.alarm(IMPORTS_LIMIT_S)
    sys.argv[1:] = words[3:]
    run("there" if words[-1] == "quick" else "imports")


main()
