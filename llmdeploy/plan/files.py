"""The plan as files: plan.yaml, and what launch will start on each host."""

import shlex

from llmdeploy import backends
from llmdeploy.backends.spec import Place
from llmdeploy.document import dump
from llmdeploy.plan.cluster_files import launch_files
from llmdeploy.plan.document import Plan, Replica

PORT = 1
"""Stands for the port until the command is written: only launch knows the real one."""


def files(plan: Plan) -> dict[str, str]:
    """File name -> text, in the plan's folder; the same plan gives the same bytes."""
    if plan.cluster is not None:
        return {"plan.yaml": dump(plan), **launch_files(plan)}
    commands = {
        f"launch/{replica.host}/{replica.name}.txt": _command(plan, replica)
        for replica in plan.replicas
    }
    return {"plan.yaml": dump(plan), **commands}


def _command(plan: Plan, replica: Replica) -> str:
    """The engine's start as a shell command; launch fills in what stands in braces."""
    place = Place(
        python=plan.python or "{python}",
        model_folder=f"{plan.model_store}/{plan.model.id}",
        address=plan.data_address,
        port=PORT,
        cores=plan.core_slots[0] if plan.core_slots else (),
    )
    command = backends.command(replica.serve, place)
    filled = {"--port": "{port}"} | ({"--cores": "{cores}"} if len(plan.core_slots) > 1 else {})
    program, flags = command.argv[:3], command.argv[3:]
    lines = [f"{name}={shlex.quote(value)}" for name, value in command.env]
    lines.append(" ".join(map(_quoted, program)))
    for flag, value in zip(flags[::2], flags[1::2], strict=True):
        lines.append(f"{flag} {filled.get(flag) or _quoted(value)}")
    return "env " + " \\\n  ".join(lines) + "\n"


def _quoted(part: str) -> str:
    return part if part == "{python}" else shlex.quote(part)
