"""A release's files and commands: the staged plan never changes, the commands follow from it."""

from llmdeploy import backends
from llmdeploy.backends.spec import Place
from llmdeploy.document import dump, parse
from llmdeploy.edge import Shell
from llmdeploy.errors import InputError, Refused
from llmdeploy.plan.document import Plan
from llmdeploy.release import groups, ports, supervise
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.room import replica_cores
from llmdeploy.release.state import Endpoint, ReleaseState
from llmdeploy.release.supervise import Program

KILL_MARGIN_S = 15.0
"""What an engine may take past its drain time to cancel requests and end its workers."""


def stage(plan: Plan, *, layout: ServiceLayout, shell: Shell) -> None:
    """plan.yaml of the release, written once; Refused where another lies under its id."""
    path, text = _path(plan.id, layout), dump(plan).encode()
    if shell.create(path, text, mode=0o444):
        return
    found = shell.read(path)
    if found != text:
        raise Refused(
            f"{path}: found other content than plan {plan.id}, needed the plan as it was staged",
            fix=f"rm {path}, then launch again",
        )


def staged(release_id: str, *, layout: ServiceLayout, shell: Shell) -> Plan:
    """The plan a release was staged with; InputError where there is none or it was changed."""
    path = _path(release_id, layout)
    text = shell.read(path)
    if text is None:
        raise InputError(
            f"{path}: no such file, needed the release's plan",
            fix=f"llmdeploy status {layout.root.rpartition('/')[2]} shows the releases there are",
        )
    plan = parse(text.decode(errors="replace"), Plan, place=path)
    if plan.id != release_id:
        raise InputError(
            f"{path}: its content is plan {plan.id}, needed {release_id}: it was changed by hand",
            fix=f"rm {path}, then launch the plan again",
        )
    return plan


def endpoints(plan: Plan, *, port_block: int) -> tuple[Endpoint, ...]:
    """Where the plan's replicas answer when the release has that block of ports."""
    if plan.cluster is not None:
        return groups.endpoints(plan, port_block=port_block)
    return tuple(
        Endpoint(
            replica=replica.name,
            host=replica.host,
            address=plan.data_address,
            port=ports.engine_port(port_block, position, plan.ports),
        )
        for position, replica in enumerate(plan.replicas)
    )


def programs(
    plan: Plan,
    *,
    core_slot: int | None,
    endpoints: tuple[Endpoint, ...],
    model_folder: str,
    python: str,
    layout: ServiceLayout,
) -> tuple[Program, ...]:
    """The supervised program of each replica, in the plan's order."""
    found = []
    for position, (replica, endpoint) in enumerate(zip(plan.replicas, endpoints, strict=True)):
        place = Place(
            python=python,
            model_folder=model_folder,
            address=endpoint.address,
            port=endpoint.port,
            cores=replica_cores(plan, core_slot, position),
        )
        command = backends.command(replica.serve, place)
        found.append(
            Program(
                name=supervise.engine_program(plan.id, replica.name),
                argv=command.argv,
                env=command.env,
                log_path=layout.engine_log(plan.id, replica.name),
                stop_timeout_s=replica.serve.drain_timeout_s + KILL_MARGIN_S,
                cwd=layout.run(plan.id),
            )
        )
    return tuple(found)


def held_cores(release: ReleaseState, *, layout: ServiceLayout, shell: Shell) -> tuple[int, ...]:
    """The cores a running release is pinned to; none where it is not pinned."""
    if release.core_slot is None:
        return ()
    return staged(release.id, layout=layout, shell=shell).core_slots[release.core_slot]


def _path(release_id: str, layout: ServiceLayout) -> str:
    return f"{layout.release(release_id)}/plan.yaml"
