"""The command group: loads a command's module when called, turns errors into exit codes."""

import errno
import importlib
import os
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from llmdeploy.errors import InputError, LlmDeployError

COMMANDS = {
    "preflight": "Ask every host once: facts, checks, findings.",
    "estimate": "Say what one launch would take and give: memory, KV tokens, fits or not, speed.",
    "plan": "Decide what runs where and why: memory, batch, replicas, promises.",
    "simulate": "Let a day of requests pass through replicas of one launch: latency at its peak.",
    "launch": "Start a release beside the running one, dark at weight 0.",
    "verify": "Accept a release, then give it traffic step by step, judged at each.",
    "rollback": "Give all traffic back to the previous release.",
    "status": "Show releases, weights, health and key figures.",
    "logs": "Show the logs of a release or of the gateway.",
    "doctor": "Name the cause of a symptom or a failed log, how to be sure, and the fix.",
    "keys": "Add, list and revoke the gateway's API keys.",
    "models": "Put models into the store, list and check them.",
    "environments": "Make the Python that engines run in on the hosts that name one.",
    "stop": "Stop a release, or the whole service.",
    "init": "Write a starter service.yaml and cluster.yaml.",
}
"""Each command's first help line, so that `--help` needs none of their modules."""


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_ROOM = "free room on the disk that the output goes to, or send it elsewhere"


class Cli(TyperGroup):
    """Shows expected errors as `error:` and `hint:`; a bug keeps its traceback and exits 1."""

    only_names = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if self.only_names:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name])
        module = importlib.import_module(f"llmdeploy.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.only_names = True
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LlmDeployError as error:
            typer.echo(f"error: {error}\n\nhint: {error.fix}", err=True)
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            if error.errno not in _NO_ROOM or error.filename is not None:
                raise
            typer.echo(f"error: standard output: {error.strerror}\n\nhint: {_ROOM}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest has no place there either
            raise typer.Exit(InputError.exit_code) from error


app = typer.Typer(cls=Cli, no_args_is_help=True, pretty_exceptions_show_locals=False)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"llmdeploy {version('llmdeploy')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[  # its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show it, then end")
    ] = False,
) -> None:
    """From bare accelerator servers to a gradually released, measured LLM service."""


def main() -> None:
    """The program `llmdeploy`."""
    app(prog_name="llmdeploy")
