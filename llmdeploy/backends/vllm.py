"""How vLLM is started: `vllm serve` on each host of a replica, followers headless, no Ray."""

from llmdeploy.backends.group import at_least, environment, parts
from llmdeploy.backends.spec import EngineCommand, GroupSpec, Place, Seat, ServeSpec

NEWEST = "0.33.0"
"""The newest version whose flags are written here. Source: vLLM 0.33.0 wheel, `vllm serve -h`."""
MULTI_NODE_MP = (0, 12, 0)
"""Since then several hosts need no Ray: `--nnodes`, `--node-rank`, `--headless`.
Source: vLLM pull request 23691, merged for the release after 0.11."""
SHUTDOWN_TIMEOUT = (0, 18, 0)
"""Since then `--shutdown-timeout` lets requests in flight end. Source: vLLM 0.18.0."""
ADMISSION = (0, 33, 0)
"""Since then `--max-num-queued-reqs` and `--fail-on-environ-validation` are known to be there.
Source: vLLM 0.33.0 wheel."""
QUANTIZATION = {"fp8": "fp8", "nf4": "bitsandbytes"}
"""What `--quantization` converts to while loading. Source: vLLM 0.33 quantization registry."""


def command(serve: ServeSpec, place: Place) -> EngineCommand:
    """Argv and environment of one host's part of a replica; no key is ever in it.

    Source: vLLM 0.33.0 `EngineArgs`, `ParallelConfig`; the multi-host form needs TP x PP to be
    divisible by the hosts.
    """
    group, seat = parts(serve, place)
    options = {
        "--served-model-name": serve.served_name,
        "--host": place.address,
        "--port": str(place.port),
        "--dtype": serve.dtype,
        "--tensor-parallel-size": str(serve.tensor_parallel),
        "--pipeline-parallel-size": str(group.pipeline_parallel),
        **_memory(serve, group),
        "--max-model-len": str(serve.max_model_len),
        "--max-num-seqs": str(max(1, serve.max_num_seqs // serve.data_parallel)),
        "--max-num-batched-tokens": str(serve.max_num_batched_tokens),
        "--kv-cache-dtype": group.kv_cache_dtype,
    }
    if serve.quantization in QUANTIZATION:
        options["--quantization"] = QUANTIZATION[serve.quantization]
    if serve.data_parallel > 1:
        options["--data-parallel-size"] = str(serve.data_parallel)
        options["--data-parallel-size-local"] = str(serve.data_parallel // group.hosts)
    if at_least(group.version, *SHUTDOWN_TIMEOUT):
        options["--shutdown-timeout"] = f"{serve.drain_timeout_s:.0f}"
    if at_least(group.version, *ADMISSION):
        options["--max-num-queued-reqs"] = str(serve.max_queue)
    options |= _hosts(serve, group, seat)
    flags = [part for option, value in options.items() for part in (option, value)]
    if _eager(serve, group):
        flags.append("--enforce-eager")
    if group.expert_parallel:
        flags.append("--enable-expert-parallel")
    if group.hosts > 1 and seat.position > 0:
        flags.append("--headless")
    if at_least(group.version, *ADMISSION):
        flags.append("--fail-on-environ-validation")
    program = (place.python, "-m", "vllm.entrypoints.cli.main", "serve", place.model_folder)
    return EngineCommand(argv=(*program, *flags), env=_environment(serve, place))


def _memory(serve: ServeSpec, group: GroupSpec) -> dict[str, str]:
    """How much KV cache a rank takes, and on processors that nothing is compiled.

    Compiling took 86 to 391 s there against 28 s without, and stages of a pipeline refuse
    `--enforce-eager`. Source: own runs of vLLM 0.32's CPU build on 2 cores.
    """
    if serve.device != "cpu":
        return {"--gpu-memory-utilization": f"{group.memory_ratio:.12g}"}
    found = {}
    if group.kv_cache_bytes is not None:
        found["--kv-cache-memory-bytes"] = str(group.kv_cache_bytes)
    if group.pipeline_parallel > 1:
        found["--compilation-config"] = '{"mode":2,"backend":"eager"}'
    return found


def _hosts(serve: ServeSpec, group: GroupSpec, seat: Seat) -> dict[str, str]:
    """How the ranks find each other; one host needs no network for it."""
    if group.hosts == 1:
        many = serve.tensor_parallel * group.pipeline_parallel > 1
        return {"--distributed-executor-backend": "mp"} if many else {}
    if serve.data_parallel > 1:
        start = serve.data_parallel // group.hosts * seat.position
        return {
            "--data-parallel-address": seat.head_address,
            "--data-parallel-rpc-port": str(seat.group_port),
            "--data-parallel-start-rank": str(start),
        }
    if not at_least(group.version, *MULTI_NODE_MP):
        return {"--distributed-executor-backend": "ray"}
    return {
        "--distributed-executor-backend": "mp",
        "--nnodes": str(group.hosts),
        "--node-rank": str(seat.position),
        "--master-addr": seat.head_address,
        "--master-port": str(seat.group_port),
        "--distributed-timeout-seconds": f"{group.start_timeout_s:.0f}",
    }


def _environment(serve: ServeSpec, place: Place) -> tuple[tuple[str, str], ...]:
    """VLLM_HOST_IP is this host's: without it vLLM asks for the route to a public address.

    On processors `--enforce-eager` still lets the sampler and split embeddings be compiled, by g++,
    with the first request that needs them: that took 25 s of the first answer.

    Source: vLLM 0.33 `get_ip`, envs.py; 0.32 `vocab_parallel_embedding.py`, own runs.
    """
    group, seat = parts(serve, place)
    values = environment(group, place, seat, on_processors=serve.device == "cpu") | {
        "VLLM_HOST_IP": place.address,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": f"{group.start_timeout_s:.0f}",
    }
    if _eager(serve, group):
        values["TORCH_COMPILE_DISABLE"] = "1"
    return tuple(sorted(values.items()))


def _eager(serve: ServeSpec, group: GroupSpec) -> bool:
    """Whether nothing may be compiled: stages of a pipeline refuse that."""
    return serve.device == "cpu" and group.pipeline_parallel == 1
