"""`llmdeploy estimate`: what one explicit launch would take and give."""

import json

import typer

from llmdeploy.cli import estimate_options as option
from llmdeploy.cli.context import Json, whole
from llmdeploy.cli.estimate_batch import answer_all
from llmdeploy.cli.estimate_table import explained, table
from llmdeploy.edge.local import LocalShell
from llmdeploy.estimate.batch import answer
from llmdeploy.estimate.explain import formula_trees, formulas
from llmdeploy.estimate.parse import KEYS
from llmdeploy.estimate.parse_case import resolve
from llmdeploy.estimate.parse_device import typed_device
from llmdeploy.estimate.parse_model import Models
from llmdeploy.estimate.parse_options import PLACE, from_options, naming_options
from llmdeploy.estimate.write import result_tree
from llmdeploy.inventory import Inventory

app = typer.Typer()
STORE: str = Inventory.model_fields["model_store"].default


@app.command()
def estimate(
    context: typer.Context,
    model: option.Model = None,
    quantization: option.Quantization = None,
    engine: option.EngineName = None,
    engine_version: option.EngineVersion = None,
    gpu: option.Gpu = None,
    gpu_memory_bytes: option.GpuMemory = None,
    gpu_bandwidth: option.GpuBandwidth = None,
    gpu_flops: option.GpuFlops = None,
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
    enforce_eager: option.EnforceEager = None,
    speculative_tokens: option.SpeculativeTokens = None,
    input_tokens: option.InputTokens = None,
    output_tokens: option.OutputTokens = None,
    concurrency: option.Concurrency = None,
    request_rate_per_s: option.RequestRate = None,
    batch: option.Batch = None,
    explain: option.Explain = False,
    store: option.Store = STORE,
    as_json: Json = False,
) -> None:
    """Say what one launch would take and give: memory, KV tokens, fits or not, speed.

    Every number comes with its 90 % interval; what is not given counts as unknown and widens it.
    Exits 0 with an answer, 3 where the launch does not fit. With --batch, each line of the file
    is a case and each line of the output its result, in the same order.
    """
    models = Models(store=whole(store), shell=LocalShell())
    options = {key: value for key, value in context.params.items() if key in KEYS}
    if batch is not None:
        answer_all(batch, options, models)
        return
    with naming_options():
        line = from_options(options)
        typed = typed_device(line, memory_rate=gpu_bandwidth, compute=gpu_flops)
        result = answer(resolve(line, place=PLACE, models=models, typed=typed))
    if as_json:
        more = {"formulas": formula_trees(formulas(result))} if explain else {}
        typer.echo(json.dumps(result_tree(result) | more, ensure_ascii=False))
    else:
        typer.echo(table(result), nl=False)
        if explain:
            typer.echo("\n" + explained(formulas(result)), nl=False)
    if result.memory.fits is False:
        raise typer.Exit(3)
