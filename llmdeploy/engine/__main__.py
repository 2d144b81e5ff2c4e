"""`python -m llmdeploy.engine` serves one model over OpenAI's HTTP API."""

import sys

from llmdeploy.engine import run, settings
from llmdeploy.errors import LlmDeployError


def main(argv: list[str], *, worker_module: str = "llmdeploy.engine.worker") -> int:
    """Runs the engine; its exit code, with the reason on stderr where it cannot start."""
    try:
        return run.run(settings.parse(argv), worker_module=worker_module)
    except LlmDeployError as error:
        sys.stderr.write(f"error: {error}\n\nhint: {error.fix}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
