"""Every command line of vLLM that a golden file holds is one that vLLM's own parser takes."""

import json
import pathlib
import subprocess

import pytest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "backends"
PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for name, words in json.load(sys.stdin).items():
    try:
        validate_parsed_serve_args(parser.parse_args(words))
        print(json.dumps([name, None]))
    except (SystemExit, ValueError, TypeError) as error:
        print(json.dumps([name, str(error)]))
"""
NOT_HERE = {"vllm_old_with_ray"}
"""Written for a version that is not installed."""


@pytest.mark.end_to_end
def test_vllm_takes_every_command_line(vllm_python: str) -> None:
    commands = {}
    for path in GOLDEN.glob("vllm_*.txt"):
        lines = path.read_text().splitlines()
        if path.stem not in NOT_HERE:
            commands[path.stem] = lines[lines.index("serve") + 1 :]
    done = subprocess.run(
        [vllm_python, "-c", PARSE], input=json.dumps(commands), capture_output=True, text=True
    )
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert found == dict.fromkeys(commands), done.stderr[-2000:]
