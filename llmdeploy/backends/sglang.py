"""How SGLang is started: `sglang.launch_server` on each host of a replica, rank 0 serves HTTP."""

from llmdeploy.backends.group import at_least, environment, parts
from llmdeploy.backends.spec import EngineCommand, GroupSpec, Place, Seat, ServeSpec

NEWEST = "0.5.23"
"""The newest version whose flags are written here. Source: SGLang 0.5.23 wheel, `ServerArgs`."""
ATTENTION_DP = (0, 5, 23)
"""Since then `--attn-dp-size`; before it `--dp-size` with `--enable-dp-attention`.
Source: SGLang 0.5.23 `ServerArgs`; the change itself may lie a few releases earlier, where both
forms work."""
DTYPE = {"bfloat16": "bfloat16", "float16": "half", "float32": "float32"}
KV_CACHE_DTYPE = {"auto": "auto", "fp8": "fp8_e4m3"}
QUANTIZATION = {"fp8": "fp8", "nf4": "bitsandbytes"}
"""What `--quantization` converts to while loading. Source: SGLang 0.5.23 `ServerArgs`."""


def command(serve: ServeSpec, place: Place) -> EngineCommand:
    """Argv and environment of one host's part of a replica; all hosts' differ in their rank alone.

    Source: SGLang 0.5.23 `ServerArgs`; `--mem-fraction-static` is weights and KV pool over the
    memory, so activations and graphs live in the rest.
    """
    group, seat = parts(serve, place)
    ranks = serve.tensor_parallel * (serve.data_parallel if group.attention_data_parallel else 1)
    options = {
        "--model-path": place.model_folder,
        "--served-model-name": serve.served_name,
        "--host": place.address,
        "--port": str(place.port),
        "--dtype": DTYPE[serve.dtype],
        "--tp-size": str(ranks),
        "--pp-size": str(group.pipeline_parallel),
        "--mem-fraction-static": f"{group.memory_ratio:.12g}",
        "--context-length": str(serve.max_model_len),
        "--max-running-requests": str(serve.max_num_seqs),
        "--max-queued-requests": str(serve.max_queue),
        "--chunked-prefill-size": str(serve.max_num_batched_tokens),
        "--kv-cache-dtype": KV_CACHE_DTYPE[group.kv_cache_dtype],
        "--dist-timeout": f"{group.start_timeout_s:.0f}",
        "--log-level": serve.log_level,
    }
    if serve.quantization in QUANTIZATION:
        options["--quantization"] = QUANTIZATION[serve.quantization]
    if group.expert_parallel:
        options["--ep-size"] = str(ranks)
    if group.vendor == "ascend":
        options |= {"--device": "npu", "--attention-backend": "ascend"}
    options |= _data_parallel(serve, group) | _hosts(group, seat)
    flags = [part for option, value in options.items() for part in (option, value)]
    flags.append("--enable-metrics")
    if group.attention_data_parallel and not at_least(group.version, *ATTENTION_DP):
        flags.append("--enable-dp-attention")
    program = (place.python, "-m", "sglang.launch_server")
    env = environment(group, place, seat)
    return EngineCommand(argv=(*program, *flags), env=tuple(sorted(env.items())))


def _data_parallel(serve: ServeSpec, group: GroupSpec) -> dict[str, str]:
    if serve.data_parallel == 1:
        return {}
    if group.attention_data_parallel and at_least(group.version, *ATTENTION_DP):
        return {"--attn-dp-size": str(serve.data_parallel)}
    return {"--dp-size": str(serve.data_parallel)}


def _hosts(group: GroupSpec, seat: Seat) -> dict[str, str]:
    if group.hosts == 1:
        return {}
    return {
        "--nnodes": str(group.hosts),
        "--node-rank": str(seat.position),
        "--dist-init-addr": f"{seat.head_address}:{seat.group_port}",
    }
