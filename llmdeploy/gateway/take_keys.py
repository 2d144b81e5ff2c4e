"""Giving a changed set of keys to the gateway, whether it runs or not."""

from llmdeploy.edge import Clock, Http, Shell
from llmdeploy.gateway import keys
from llmdeploy.gateway.apply import read_state, update
from llmdeploy.gateway.change import with_keys
from llmdeploy.gateway.confirm import confirm
from llmdeploy.gateway.state import GatewayState
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.supervise import GATEWAY, Supervisor


def take_keys(
    layout: ServiceLayout, *, supervisor: Supervisor, shell: Shell, http: Http, clock: Clock
) -> bool:
    """Whether the keys as they are now are in effect at a running gateway.

    False where none runs: it takes them when it starts.
    """
    if read_state(layout, shell) is None:
        return False

    def change(state: GatewayState) -> GatewayState:  # read last: a revocation is never undone
        return with_keys(state, keys.rules(layout, shell=shell, clock=clock))

    update(change, layout=layout, shell=shell, clock=clock)
    if not supervisor.state(GATEWAY).running:
        return False
    confirm(layout, shell=shell, http=http, clock=clock)
    return True
