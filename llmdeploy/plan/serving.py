"""How each replica of a cluster's plan is to be served: a ServeSpec a part and engine."""

from dataclasses import dataclass, replace
from typing import Literal

from llmdeploy.backends import sglang, vllm
from llmdeploy.backends.spec import GroupSpec, ServeSpec
from llmdeploy.catalog import engines
from llmdeploy.catalog.types import Engine
from llmdeploy.errors import InputError
from llmdeploy.model import ModelShape
from llmdeploy.plan.cluster import Alternative
from llmdeploy.plan.proposal import batched_tokens
from llmdeploy.plan.rank import Option, Part
from llmdeploy.plan.rules import first_broken
from llmdeploy.plan.size import Estimators
from llmdeploy.plan.weights import dtype
from llmdeploy.service import Service

START_TIMEOUT_S = 300.0
"""How long ranks wait for each other. Source: own choice; the engines' own 600 to 1800 s hide a
wrong address for as long."""
NEWEST = {"vllm": vllm.NEWEST, "sglang": sglang.NEWEST}
KINDS: dict[str, Literal["cpu", "cuda", "rocm", "npu", "xpu"]] = {
    "nvidia": "cuda", "amd": "rocm", "ascend": "npu", "cpu": "cpu",
}  # fmt: skip
VENDORS: dict[str, Literal["nvidia", "amd", "ascend", "other"]] = {
    "nvidia": "nvidia", "amd": "amd", "ascend": "ascend",
}  # fmt: skip
PAGE_TOKENS = 32
"""Of the embedded engine's KV cache."""

EngineKind = Literal["embedded", "vllm", "sglang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The engine that a service asks for."""

    engine: Engine
    """Without a version where it is newer than any that is known: figures are less sure then."""
    version: str
    """As written on the command line."""
    newer: bool = False
    """Whether the version is newer than any whose flags and memory are known."""


def wanted(service: Service) -> Wanted:
    """The engine and version to plan with: vllm where the service leaves it open; InputError where
    the version names no release."""
    kind = service.engine.kind
    name: EngineKind = "vllm" if kind == "auto" else kind
    newest = NEWEST.get(name, "")
    version = service.engine.version or newest
    engine = engines.find(name, version or None)
    if not newest:
        return Wanted(engine=engine, version=version)
    if engine.version is None:
        raise InputError(
            f"engine/version: found {version!r}, needed a release of {name}",
            fix=f"write it like engine.version: {newest!r}, or leave it out",
        )
    known = engines.find(name, newest).version
    newer = known is not None and engine.version > known
    return Wanted(
        engine=replace(engine, version=None) if newer else engine, version=version, newer=newer
    )


def serve(
    part: Part, service: Service, shape: ModelShape, *, kind: EngineKind, version: str
) -> ServeSpec:
    """How a replica of that part is served by that engine."""
    proposal, engine = part.sized.proposal, service.engine
    printed = part.sized.printed_tokens
    if kind == "embedded":
        printed = printed // PAGE_TOKENS * PAGE_TOKENS
    return ServeSpec(
        engine=kind,
        served_name=service.model.id,
        device=KINDS.get(proposal.pool.device.vendor, "xpu"),
        dtype=dtype(service, shape, proposal.pool.device),
        quantization=proposal.weights.convert,
        tensor_parallel=proposal.tensor_parallel,
        data_parallel=proposal.data_parallel,
        threads_per_worker=1,
        max_model_len=engine.max_model_len,
        max_num_seqs=part.sized.batch,
        max_num_batched_tokens=batched_tokens(service),
        max_queue=service.gateway.max_queue,
        kv_cache_tokens=printed,
        batch_window_s=engine.batch_window_s,
        request_timeout_s=engine.request_timeout_s,
        drain_timeout_s=engine.drain_timeout_s,
        log_level=engine.log_level,
        group=None if kind == "embedded" else _group(part, service, version),
    )


def alternatives(
    option: Option, service: Service, shape: ModelShape, *, using: Estimators
) -> tuple[Alternative, ...]:
    """The same layout on the engines that were not planned, as far as they can serve it."""
    kinds: tuple[EngineKind, ...] = ("vllm", "sglang", "embedded")
    return tuple(
        _alternative(kind, option, service, shape, using=using)
        for kind in kinds
        if any(part.sized.proposal.engine.name != kind for part in option.parts)
    )


def _alternative(
    kind: EngineKind, option: Option, service: Service, shape: ModelShape, *, using: Estimators
) -> Alternative:
    version = NEWEST.get(kind, "")
    engine = engines.find(kind, version or None)
    serves, tokens = [], []
    for part in option.parts:
        proposal = replace(part.sized.proposal, engine=engine)
        broken = first_broken(proposal, shape)
        if broken is not None:
            return Alternative(engine=kind, fits=False, words=broken.words, serves=())
        case = proposal.case(service, shape, max_num_seqs=part.sized.batch)
        memory = using.memory(case)
        if memory.fits is False:
            words = memory.refusal or "the engine would refuse to start"
            return Alternative(engine=kind, fits=False, words=words, serves=())
        sized = replace(part.sized, proposal=proposal, memory=memory)
        serves.append(serve(replace(part, sized=sized), service, shape, kind=kind, version=version))
        tokens.append(serves[-1].kv_cache_tokens)
    written = " and ".join(str(count) for count in tokens)
    words = f"{f'version {version}, ' if version else ''}{written} KV tokens a replica"
    return Alternative(engine=kind, fits=True, words=words, serves=tuple(serves))


def _group(part: Part, service: Service, version: str) -> GroupSpec:
    proposal, kv_cache = part.sized.proposal, part.sized.memory.kv_cache_bytes
    on_processors = proposal.pool.device.vendor == "cpu"
    return GroupSpec(
        version=version,
        vendor=VENDORS.get(proposal.pool.device.vendor, "other"),
        hosts=proposal.machines,
        pipeline_parallel=proposal.pipeline_parallel,
        expert_parallel=proposal.expert_parallel,
        attention_data_parallel=proposal.data_parallel > 1,
        kv_cache_dtype="fp8" if proposal.kv_cache_dtype == "fp8" else "auto",
        memory_ratio=service.engine.memory_ratio,
        start_timeout_s=START_TIMEOUT_S,
        kv_cache_bytes=round(kv_cache.value) if on_processors and kv_cache else None,
    )
