"""A service's state on disk as its commands find it, with nothing of it running."""

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.gateway.apply import apply
from llmdeploy.gateway.change import state_for, with_release, with_weights
from llmdeploy.gateway.state import GatewayRelease, KeyRules
from llmdeploy.release import fold, journal
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.stage import stage
from llmdeploy.release.state import Endpoint, Phase, Standing

from ..release.made import free_port, plan, serve

SHELL, CLOCK = LocalShell(), SystemClock()


def service_at(root, *standings: Standing) -> tuple[ServiceLayout, list[str]]:
    """The service `chat` under `root` with one release of each standing; the live one has all
    traffic. Returns its layout and the releases' ids."""
    layout = ServiceLayout(root=f"{root}/chat")
    state, ids = None, []
    for number, standing in enumerate(standings):
        replica = (
            plan()
            .replicas[0]
            .model_copy(update={"serve": serve(max_num_batched_tokens=64 + number)})
        )
        wanted = plan(replicas=(replica,))
        stage(wanted, layout=layout, shell=SHELL)
        endpoint = Endpoint(replica="r1", host="local", address="127.0.0.1", port=free_port())
        data = fold.planned_data(port_block=number, core_slot=None, endpoints=(endpoint,))
        edges = {"layout": layout, "shell": SHELL, "clock": CLOCK}
        journal.append(fold.PLANNED, data, release=wanted.id, **edges)
        journal.mark_phase(wanted.id, Phase.PROBED, **edges)
        journal.mark_standings({wanted.id: standing}, release=wanted.id, **edges)
        state = state_for(wanted, keys=KeyRules(public_keys=()), before=state)
        known = GatewayRelease(id=wanted.id, endpoints=(endpoint,), max_concurrency=8)
        state = with_release(state, known)
        if standing == Standing.LIVE:
            state = with_weights(state, {wanted.id: 1.0})
        ids.append(wanted.id)
    if state:
        apply(state, layout=layout, shell=SHELL)
    return layout, ids
