"""How `llmdeploy plan` cuts this machine into workers and threads, from its measured rates."""

import pathlib
import sys

from llmdeploy.document import parse
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.facts.collect import Paths, collect
from llmdeploy.plan.device import choose_device
from llmdeploy.plan.layout import Shortfall, lay_out
from llmdeploy.service import Service
from llmdeploy.store import load

SERVICE = """
cluster: cluster.yaml
model: {{id: {model}, dtype: {dtype}}}
engine: {{max_num_seqs: {requests}, max_model_len: 1024}}
workload:
  requests_per_day: 1000000000
  input_tokens: {{mean: 128, p95: 128}}
  output_tokens: {{mean: {tokens}, p95: {tokens}}}
release: {{side_by_side: false}}
"""
"""All of the requests run at the peak."""


def workers(
    model: str, *, levels: tuple[int, ...], dtype: str, tokens: int, cores: int
) -> dict[int, int]:
    """The workers that a plan for so many requests at once has on so many cores, by level."""
    folder, shell = pathlib.Path(model), LocalShell()
    paths = Paths(
        state_root=str(folder.parent), model_store=str(folder.parent), service="chat",
        model=folder.name,
    )  # fmt: skip
    facts = collect("local", sys.executable, paths, shell=shell, clock=SystemClock()).hosts[0]
    ids = facts.cpu_ids or range(cores)
    facts = facts.model_copy(update={"cpu_cores": cores, "cpu_ids": tuple(ids)[:cores]})
    manifest = load(model, shell=shell).manifest
    found = {}
    for level in levels:
        text = SERVICE.format(model=folder.name, dtype=dtype, requests=level, tokens=tokens)
        service = parse(text, Service, place="service.yaml")
        layout = lay_out(service, choose_device(facts, service), manifest)
        found[level] = 1 if isinstance(layout, Shortfall) else layout.workers
    return found
