"""Shapes, devices and cases that the memory tests count by hand."""

from dataclasses import replace
from typing import Any

from llmdeploy.catalog.types import DeviceSpec, Engine
from llmdeploy.estimate.case import Case
from llmdeploy.model import CacheLayers, Experts, ModelShape, Parameters, WeightFormat

GIB = 2**30


def _device(
    id: str, name: str, *, usable_gib: float, vendor: Any = "nvidia", link: str
) -> DeviceSpec:
    return DeviceSpec(
        id=id, name=name, vendor=vendor, architecture="test", memory_bytes=round(usable_gib * GIB),
        usable_memory_bytes=round(usable_gib * GIB), memory_bytes_per_s=1e12, bf16_flops_per_s=1e14,
        fp8_flops_per_s=None, int8_flops_per_s=None, fp4_flops_per_s=None, compute_capability=None,
        power_w=None, link=link, source="test",
    )  # fmt: skip


RTX4090 = _device("rtx4090", "GeForce RTX 4090", usable_gib=23.5, link="pcie4-host")
A100 = _device("a100-80-sxm", "A100 80GB SXM4", usable_gib=79.25, link="nvlink3")
H100 = _device("h100-sxm", "H100 80GB SXM5", usable_gib=79.2, link="nvlink4")
GB10 = _device("gb10", "GB10 DGX Spark", usable_gib=119.7, link="host")
ASCEND = _device("910b", "Ascend 910B", usable_gib=60.9, vendor="ascend", link="hccs")


def full(layers: int, kv_heads: int, head_dim: int) -> CacheLayers:
    return CacheLayers(
        kind="full", layers=layers, kv_heads=kv_heads, head_dim=head_dim, value_dim=head_dim
    )


def windowed(
    layers: int, kv_heads: int, head_dim: int, window: int, kind: Any = "sliding"
) -> CacheLayers:
    return CacheLayers(
        kind=kind, layers=layers, kv_heads=kv_heads, head_dim=head_dim, value_dim=head_dim,
        window_tokens=window,
    )  # fmt: skip


def state(layers: int, *, convolution: int, recurrent: int, float32: bool = False) -> CacheLayers:
    return CacheLayers(
        kind="state", layers=layers, state_elements=convolution + recurrent,
        convolution_elements=convolution, state_dtype="float32" if float32 else None,
    )  # fmt: skip


def shape(*cache: CacheLayers, **changes: Any) -> ModelShape:
    """Llama-3.1-8B with another cache and whatever else is changed."""
    values: dict[str, Any] = {
        "architecture": "LlamaForCausalLM",
        "layers": sum(part.layers for part in cache),
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "attention_heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "vocabulary_size": 128256,
        "max_positions": 131072,
        "tied_embeddings": False,
        "dtype": "bfloat16",
        "parameters": Parameters(
            embedding=128256 * 4096,
            head=128256 * 4096,
            attention=32 * (4096 * 4096 * 2 + 2 * 4096 * 1024),
            attention_kv=32 * 2 * 4096 * 1024,
            dense_mlp=32 * 3 * 4096 * 14336,
            other=65 * 4096,
        ),
    }
    return ModelShape(cache=cache, **(values | changes))


LLAMA_8B = shape(full(32, 8, 128))
LLAMA_70B = shape(full(80, 8, 128), hidden_size=8192, intermediate_size=28672, attention_heads=64)
QWEN25_7B = shape(full(28, 4, 128), hidden_size=3584, intermediate_size=18944, kv_heads=4)
OPT_125M = shape(full(12, 12, 64), dtype="float16", attention_heads=12, kv_heads=12, head_dim=64)
DEEPSEEK_V3 = shape(
    CacheLayers(kind="latent", layers=61, latent_dim=576),
    attention_heads=128, kv_heads=128, hidden_size=7168,
)  # fmt: skip
DEEPSEEK_V32 = shape(
    CacheLayers(kind="latent", layers=61, latent_dim=576, indexer_bytes=132),
    attention_heads=128, kv_heads=128, hidden_size=7168,
)  # fmt: skip
GPT_OSS_20B = shape(
    full(12, 8, 64), windowed(12, 8, 64, 128), architecture="GptOssForCausalLM",
    vocabulary_size=201088, hidden_size=2880, intermediate_size=2880, head_dim=64,
    experts=Experts(layers=24, count=32, active=4, intermediate_size=2880),
)  # fmt: skip
GEMMA3_27B = shape(full(10, 16, 128), windowed(52, 16, 128, 1024), kv_heads=16)
GEMMA4_12B = shape(full(8, 1, 512), windowed(40, 8, 256, 1024))
LLAMA4_SCOUT = shape(full(12, 8, 128), windowed(36, 8, 128, 8192, "chunked"))
QWEN3_NEXT = shape(
    full(12, 2, 256), state(36, convolution=8192 * 3, recurrent=32 * 128 * 128), kv_heads=2
)
QWEN35_27B = shape(
    full(16, 4, 256),
    state(48, convolution=10240 * 3, recurrent=48 * 128 * 128, float32=True),
    kv_heads=4,
)
KIMI_LINEAR = shape(
    CacheLayers(kind="latent", layers=7, latent_dim=576),
    state(20, convolution=3 * 4096 * 3, recurrent=32 * 128 * 128),
    architecture="KimiLinearForCausalLM",
)  # fmt: skip
FP8 = WeightFormat(method="fp8", bits=8, kv_cache_dtype="fp8")


def case(
    of: ModelShape = LLAMA_8B,
    *,
    engine: Any = "vllm",
    version: tuple[int, ...] | None = (0, 12, 0),
    device: DeviceSpec | None = RTX4090,
    **changes: Any,
) -> Case:
    """A launch on one RTX 4090 unless said otherwise."""
    plain = Case(
        shape=of,
        weight_format=None,
        engine=Engine(name=engine, version=version),
        device=device,
        device_memory_bytes=None,
    )
    return replace(plain, **changes)
