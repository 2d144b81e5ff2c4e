"""The finding about a host that gave no facts."""

from llmdeploy.facts.bundle import Unreached
from llmdeploy.facts.finding import Finding, Remedy, Status

REACHED = "net.ssh.reach"
"""Id of the only check that needs no facts."""


def not_reached(host: Unreached) -> Finding:
    """FAIL: nothing is known of the host, so nothing can be started on it."""
    return Finding(
        check=REACHED,
        status=Status.FAIL,
        subject=host.host,
        found=host.found,
        needed="an answer to the probe before its deadline",
        fix=host.fix,
        remedy=Remedy.CONFIG,
        origin="ssh",
    )
