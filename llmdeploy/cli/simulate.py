"""`llmdeploy simulate`: a day of requests, or recorded ones, through replicas of one launch."""

import dataclasses
import json
from typing import Annotated, Any

import typer

from llmdeploy.cli import estimate_options as option
from llmdeploy.cli import simulate_load as load_option
from llmdeploy.cli.context import Json, whole
from llmdeploy.cli.simulate_load import lengths_of, recorded, traffic_of
from llmdeploy.cli.values import at_least
from llmdeploy.edge.local import LocalShell
from llmdeploy.estimate import memory, speed
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.parse import KEYS, CaseLine
from llmdeploy.estimate.parse_case import resolve
from llmdeploy.estimate.parse_model import Models
from llmdeploy.estimate.parse_options import PLACE, from_options, naming_options
from llmdeploy.inventory import Inventory
from llmdeploy.service import Workload
from llmdeploy.simulate.launch import limits, mean_case
from llmdeploy.simulate.scenario import answer, replay
from llmdeploy.simulate.table import table

app = typer.Typer()
STORE: str = Inventory.model_fields["model_store"].default
REPLICAS = "equal launches behind a balancer, 1 or more"
PEAK: float = Workload.model_fields["peak_factor"].default


@app.command()
def simulate(
    context: typer.Context,
    model: option.Model = None,
    quantization: option.Quantization = None,
    engine: option.EngineName = None,
    engine_version: option.EngineVersion = None,
    gpu: option.Gpu = None,
    gpu_memory_bytes: option.GpuMemory = None,
    gpus: option.Gpus = None,
    hosts: option.Hosts = None,
    interconnect: option.Interconnect = None,
    tensor_parallel: option.TensorParallel = None,
    pipeline_parallel: option.PipelineParallel = None,
    data_parallel: option.DataParallel = None,
    expert_parallel: option.ExpertParallel = None,
    memory_fraction: option.MemoryFraction = None,
    max_model_len: option.MaxModelLen = None,
    kv_cache_dtype: option.KvCacheDtype = None,
    dtype: option.Dtype = None,
    max_num_seqs: option.MaxNumSeqs = None,
    max_num_batched_tokens: option.MaxNumBatchedTokens = None,
    input_tokens: option.InputTokens = None,
    input_p95: load_option.LengthP95 = None,
    output_tokens: option.OutputTokens = None,
    output_p95: load_option.LengthP95 = None,
    request_rate_per_s: option.RequestRate = None,
    peak_factor: Annotated[float, typer.Option(help="peak rate over the day's mean")] = PEAK,
    requests: load_option.Requests = None,
    replicas: Annotated[int, typer.Option(callback=at_least(1), help=REPLICAS)] = 1,
    max_queue: load_option.MaxQueue = None,
    seed: Annotated[int, typer.Option(help="of the random arrivals and lengths")] = 0,
    store: option.Store = STORE,
    as_json: Json = False,
) -> None:
    """Let a day of requests pass through replicas of one launch: latency at its peak.

    Shows the busiest hour, simulated and in closed form, with what was approximated. The same
    options give the same answer.
    """
    past = recorded(requests) if requests else None
    lengths = lengths_of(past, (input_tokens, input_p95), (output_tokens, output_p95))
    mean_tokens = lengths[0].mean_tokens + lengths[1].mean_tokens
    means = {"input_tokens": lengths[0].mean_tokens, "output_tokens": lengths[1].mean_tokens}
    line, case = _asked(context.params | means, store)
    taken = memory.estimate(mean_case(case, mean_tokens))
    bounds = limits(case, taken, mean_tokens=mean_tokens, max_queue=max_queue)
    pace = speed.pace(case)
    if past is not None:
        found = replay(past, pace, replicas=replicas, limits=bounds, seed=seed)
    else:
        load = traffic_of(line.request_rate_per_s, peak_factor, lengths, case)
        found = answer(load, pace, replicas=replicas, limits=bounds, seed=seed)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found)))
    else:
        typer.echo(table(found), nl=False)


def _asked(params: dict[str, Any], store: str) -> tuple[CaseLine, Case]:
    """The launch that the options describe; what had to be assumed is said on stderr."""
    with naming_options():
        line = from_options({key: value for key, value in params.items() if key in KEYS})
        models = Models(store=whole(store), shell=LocalShell())
        resolved = resolve(line, place=PLACE, models=models)
    for assumption in resolved.assumptions:
        typer.echo(f"assumed: {assumption}", err=True)
    return line, resolved.case
