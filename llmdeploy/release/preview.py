"""What a launch will do on the host, in words and commands, before anyone says yes."""

import shlex

from llmdeploy.plan.document import Plan
from llmdeploy.release import checks, group_preview, journal, opened, prepare, room, stage
from llmdeploy.release.site import Site


def preview(plan: Plan, *, site: Site) -> tuple[str, ...]:
    """Lines for people; ports and cores are those that are free now."""
    state = journal.state(site.layout, shell=site.shell)
    known = state.release(plan.id)
    if known and prepare.climbs(known, site=site):
        return (
            f"# release {plan.id} runs on {known.endpoints[0].port}: checks it, starts nothing",
        )
    leaving = prepare.making_room(plan, state, site=site)
    if plan.cluster is not None:
        block = prepare.free_block(plan.ports, site)
        return (
            *(f"# stop release {release.id} ({release.standing})" for release in leaving),
            *group_preview.preview(plan, block=block, site=site),
            _gateway(plan),
        )
    staying = [release for release in room.busy(state, plan.id) if release not in leaving]
    held = [stage.held_cores(r, layout=site.layout, shell=site.shell) for r in staying]
    slot = room.core_slot(plan, held)
    model = checks.model_of(plan, shell=site.shell)
    sealed, memory = model.manifest.sealed is not None, opened.folder(plan.id)
    programs = stage.programs(
        plan,
        core_slot=slot,
        endpoints=stage.endpoints(plan, port_block=prepare.free_block(plan.ports, site)),
        model_folder=f"{memory}/{plan.model.id}" if sealed else model.folder,
        python=site.python,
        layout=site.layout,
    )
    return (
        *(f"# stop release {release.id} ({release.standing})" for release in leaving),
        f"# write {site.layout.release(plan.id)}/plan.yaml",
        *([f"# open the sealed files into {memory}, in memory"] if sealed else []),
        *(f"{shlex.join(program.argv)}" for program in programs),
        _gateway(plan),
    )


def _gateway(plan: Plan) -> str:
    place = f"{plan.gateway.host}:{plan.gateway.port}"
    return f"# gateway on {place}: add release {plan.id} at weight 0"
