"""The requests that `llmdeploy launch` proves an engine with, for an engine started by hand."""

import pathlib

from llmdeploy.document import parse
from llmdeploy.edge.http import HttpxHttp
from llmdeploy.plan.document import Plan
from llmdeploy.release import warm
from llmdeploy.release.state import Endpoint


def prove(folder: pathlib.Path, *, address: str, port: int) -> None:
    """The engine of the plan's first replica, at that address, has answered them."""
    plan = parse((folder / "plan.yaml").read_text(), Plan, place="plan.yaml")
    replica, http = plan.replicas[0], HttpxHttp()
    at = Endpoint(replica=replica.name, host=replica.host, address=address, port=port)
    warm.warm(plan, replica, at, http=http)
    warm.probe(replica, at, http=http)
