"""SGLang's account: the pool is the share of what was free, less the weights; the rest is for
activations and graphs.

Source: SGLang 0.2 to 0.5.9 `model_runner.py` and `model_runner_kv_cache_mixin.py`,
`profile_max_num_token`; `server_args.py`."""

from llmdeploy.catalog.types import Engine
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.account import Account
from llmdeploy.estimate.memory.activation import forward_bytes
from llmdeploy.estimate.memory.draft import cached_shape
from llmdeploy.estimate.memory.layers import (
    CacheAsk,
    LayerCache,
    attention_parallel,
    dtype_bytes,
    kv_element_bytes,
    layer_caches,
    length_tokens,
)
from llmdeploy.estimate.memory.pool import Pool
from llmdeploy.estimate.memory.spread import Term
from llmdeploy.estimate.memory.terms import GIB, has_nvlink, is_unified, total, weights

MIB = 2**20
CONTEXT_BYTES = 0.5 * GIB
CONTEXT_DEVIATION_BYTES = 0.25 * GIB
GROUP_BYTES = 0.55 * GIB
GROUP_DEVIATION_BYTES = 0.35 * GIB
"""What a device holds before the weights: its context, and over NVLink buffers for each doubling
of the ranks.

Source: our fit over 46 public launch logs that print the free memory before the weights: 0.1 to
0.7 GiB on one device and over PCIe, 2.1 to 2.6 on 8 and 16 over NVLink."""
LOADED_BYTES = 0.12 * GIB
LOADED_DEVIATION_BYTES = 0.12 * GIB
"""What loading takes beside the weights. Source: same logs: 0 to 0.4 GiB."""
UNIFIED_BYTES = 8.0 * GIB
UNIFIED_DEVIATION_BYTES = 3.0 * GIB
"""Source: 3 logs on GB10: 112 to 115 of 121.7 GiB free before the weights."""
WINDOW_RATIO = 0.8
"""swa_full_tokens_ratio: tokens of the window's pool to the full pool's, its default."""
WINDOWED_SINCE = (0, 4, 10)
"""Two pools for sliding layers. Source: SGLang 0.4.10 `is_hybrid`; before, all full."""
STATE_TO_FULL_RATIO = 0.9
"""mamba_full_memory_ratio, its default. Source: SGLang 0.5.9 `handle_max_mamba_cache`."""
COMPRESSED_CELL_RATIO = (0.5, 30.0)
"""Of compressed caches, which have more pools than the config shows. Source: one public log."""
PAGE_TOKENS = {"ascend": 128}
GRAPH_BYTES = 1.0 * GIB
GRAPH_DEVIATION_BYTES = 1.0 * GIB
NEWEST = (99, 0, 0)


def account(case: Case) -> Account:
    """SGLang's memory on the fullest rank."""
    device = total(case)
    loaded = weights(case)
    context = _context(case)
    total_bytes = device.value_bytes if device else 80.0 * GIB
    share = case.memory_ratio if case.memory_ratio is not None else _share(case, total_bytes)
    length = length_tokens(case)
    available = left = None
    if device is not None:
        free = device - context
        extra = Term(LOADED_BYTES, LOADED_DEVIATION_BYTES)
        available = free.scaled(share) - loaded - extra
        left = free.scaled(1 - share)
        if case.memory_ratio is None:
            available = available + Term(0.0, 0.02 * total_bytes)
    activation = forward_bytes(
        case, case.max_num_batched_tokens or _chunk_tokens(case, total_bytes)
    )
    cell, bounds = _cell(case)
    return Account(
        engine="SGLang",
        share_name="mem_fraction_static",
        share_ratio=share,
        total=device,
        weights=loaded,
        activation=Term(activation, 0.4 * activation),
        graphs=Term(0.0) if case.enforce_eager else Term(GRAPH_BYTES, GRAPH_DEVIATION_BYTES),
        other=context,
        available=available,
        left=left,
        cache=Pool(cell_bytes=cell, page_tokens=_page_tokens(case)) if cell else None,
        cell_ratio=bounds,
        length_tokens=length,
        length_given=case.max_model_len is not None,
        refuses_long=False,
    )


def _context(case: Case) -> Term:
    ranks = case.tensor_parallel * case.pipeline_parallel
    term = Term(CONTEXT_BYTES, CONTEXT_DEVIATION_BYTES)
    if case.device is not None and case.device.vendor == "ascend":
        return Term(0.1 * GIB, 0.1 * GIB)
    if ranks > 1 and has_nvlink(case):
        doublings = ranks.bit_length() - 1
        term = term + Term(GROUP_BYTES * doublings, GROUP_DEVIATION_BYTES)
    if is_unified(case):
        term = term + Term(UNIFIED_BYTES, UNIFIED_DEVIATION_BYTES)
    return term


def _page_tokens(case: Case) -> int:
    return PAGE_TOKENS.get(case.device.vendor, 1) if case.device else 1


def _cell(case: Case) -> tuple[float, tuple[float, float]]:
    """Bytes of a cell, and their bounds where an option that is not known sets them."""
    ask = CacheAsk(
        element_bytes=kv_element_bytes(case, obeys_checkpoint=True),
        dtype_bytes=dtype_bytes(case),
        tensor_parallel=attention_parallel(case),
        pipeline_parallel=case.pipeline_parallel,
    )
    layers = layer_caches(cached_shape(case), ask)
    full = _sum(layers, ("full", "latent", "chunked"))
    window = _sum(layers, ("sliding",))
    if not full:
        return window, (1.0, 1.0)
    if any(layer.kind == "state" for layer in layers):
        return full * (1 + STATE_TO_FULL_RATIO), (0.6, 1.05)
    if any(part.compression > 1 for part in case.shape.cache):
        return full + window, COMPRESSED_CELL_RATIO
    if not window:
        return full, (1.0, 1.0)
    if not _has_two_pools(case):
        return full + window, (1.0, 1.0)
    cell = full + WINDOW_RATIO * window
    return cell, ((full + 0.03 * window) / cell, 1.0)


def _has_two_pools(case: Case) -> bool:
    """Whether sliding layers have a pool of their own.

    Source: SGLang 0.5.9 `server_args.py`, disable_hybrid_swa_memory: always for Gemma 2 and 3, for
    gpt-oss until 0.5.7.
    """
    version, architecture = _version(case.engine), case.shape.architecture
    if architecture.startswith("GptOss"):
        return version >= (0, 5, 8)
    return version >= WINDOWED_SINCE and not architecture.startswith(("Gemma2", "Gemma3"))


def _sum(layers: tuple[LayerCache, ...], kinds: tuple[str, ...]) -> float:
    return sum(x.stage_layers * x.bytes_per_token for x in layers if x.kind in kinds)


def _version(engine: Engine) -> tuple[int, ...]:
    return engine.version or NEWEST


def _share(case: Case, total_bytes: float) -> float:
    """mem_fraction_static where it is not given.

    Source: SGLang 0.2 to 0.4.6 (by ranks alone); 0.5 `_handle_gpu_memory_settings`:
    (memory - 512 MiB - 1.5 MiB x chunk - 2 MiB x largest graph - ranks / 8 GiB) / memory.
    """
    ranks = case.tensor_parallel * case.pipeline_parallel
    if _version(case.engine) < (0, 4, 7):
        for least, share in ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87)):
            if ranks >= least:
                return share
        return 0.88
    memory = total_bytes / MIB
    reserved = 512 + 1.5 * max(_chunk_tokens(case, total_bytes), 2048)
    reserved += 2 * _largest_graph(ranks, memory) + ranks / 8 * 1024
    if memory > 60 * 1024:
        reserved = max(reserved, 10 * 1024.0)
    share = round((memory - reserved) / memory, 3)
    return share * 0.95 if case.shape.multimodal else share


def _chunk_tokens(case: Case, total_bytes: float) -> int:
    """chunked_prefill_size where it is not given. Source: as `_share`."""
    memory = total_bytes / GIB
    if case.device is not None and case.device.vendor == "ascend":
        return 32768
    for least, tokens in ((160, 16384), (60, 8192), (35, 4096)):
        if memory >= least:
            return tokens
    return 2048


def _largest_graph(ranks: int, memory_mib_bytes: float) -> int:
    few = ranks < 4
    for least, small, large in ((160, 512, 512), (60, 256, 512), (35, 32, 160), (20, 24, 80)):
        if memory_mib_bytes >= least * 1024:
            return small if few else large
    return 8
