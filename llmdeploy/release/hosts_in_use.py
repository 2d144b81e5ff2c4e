"""Which hosts of a cluster a plan, or a service's running releases, need."""

from llmdeploy.edge import Shell
from llmdeploy.errors import LlmDeployError
from llmdeploy.plan.document import Plan
from llmdeploy.release import journal, room, stage
from llmdeploy.release.layout import ServiceLayout


def hosts_of(plan: Plan) -> frozenset[str]:
    """Names of the hosts that a plan puts ranks on."""
    return frozenset(m.host for replica in plan.replicas for m in replica.members or ())


def hosts_in_use(layout: ServiceLayout, *, shell: Shell) -> frozenset[str]:
    """Names of the hosts that the service's running releases are on."""
    found: set[str] = set()
    try:
        for release in room.running(journal.state(layout, shell=shell)):
            found |= hosts_of(stage.staged(release.id, layout=layout, shell=shell))
    except LlmDeployError:  # a damaged journal or plan must not keep anyone from looking
        return frozenset(found)
    return frozenset(found)


def knows_releases(layout: ServiceLayout, *, shell: Shell) -> bool:
    """Whether the journal tells what was launched; not where it was emptied or damaged."""
    try:
        return bool(journal.state(layout, shell=shell).releases)
    except LlmDeployError:
        return False
