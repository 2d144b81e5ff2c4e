"""A cluster plan's launch files: one a replica, host and engine that can serve the layout."""

import shlex

from llmdeploy import backends
from llmdeploy.backends.spec import Place, Seat, ServeSpec
from llmdeploy.plan.cluster import Member
from llmdeploy.plan.document import Plan, Replica

PORT, GROUP_PORT = 1, 2
"""Stand for the ports until the command is written: only launch knows the real ones."""
HOLES = {str(PORT): "{port}", str(GROUP_PORT): "{group_port}"}
PORT_OPTIONS = {"--port", "--master-port", "--data-parallel-rpc-port", "--dist-init-addr"}


def launch_files(plan: Plan) -> dict[str, str]:
    """`launch/HOST/REPLICA.txt` of the planned engine, `launch/HOST/REPLICA.ENGINE.txt` of the
    others. What only launch knows stands in braces."""
    assert plan.cluster is not None, "only a cluster's plan has members"
    files: dict[str, str] = {}
    for replica in plan.replicas:
        for member in replica.members or ():
            folder = f"launch/{member.host}/{replica.name}"
            files[f"{folder}.txt"] = _command(plan, replica, member, replica.serve)
            for other in plan.cluster.alternatives:
                if other.fits:
                    spec = other.serves[replica.part or 0]
                    files[f"{folder}.{other.engine}.txt"] = _command(plan, replica, member, spec)
    return files


def _command(plan: Plan, replica: Replica, member: Member, spec: ServeSpec) -> str:
    """The engine's start on one host as a shell command."""
    members = replica.members or ()
    place = Place(
        python=plan.python or "{python}",
        model_folder=f"{plan.model_store}/{plan.model.id}",
        address=member.address,
        port=PORT,
        cores=(),
        seat=Seat(
            position=member.position,
            head_address=members[0].address,
            group_port=GROUP_PORT,
            interface="{interface}" if len(members) > 1 else None,
            device_ids=member.device_ids,
        ),
    )
    command = backends.command(spec, place)
    lines = [f"{name}={_quoted(value)}" for name, value in command.env]
    words: list[str] = []
    for part in command.argv:
        if part.startswith("--"):
            lines.append(" ".join(words))
            words = [part]
        else:
            words.append(_hole(words, part))
    lines.append(" ".join(words))
    note = "# spare: the peak is carried without it\n" if replica.spare else ""
    return note + "env " + " \\\n  ".join(lines) + "\n"


def _hole(words: list[str], part: str) -> str:
    """The part quoted, a port that stands for a real one as its name in braces."""
    option = words[0] if words else ""
    if option in PORT_OPTIONS:
        address, colon, port = part.rpartition(":")
        return f"{address}{colon}{HOLES.get(port, port)}"
    return _quoted(part)


def _quoted(part: str) -> str:
    """Quoted for a shell, but for names in braces that launch fills in."""
    bare = part.strip("=")
    return part if bare.startswith("{") and bare.endswith("}") else shlex.quote(part)
