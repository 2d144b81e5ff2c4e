"""Hosts, models and services to plan with; the numbers are those of SmolLM2-135M."""

from typing import Any

from llmdeploy.facts.bundle import Asked, Bundle, HostFacts, Source
from llmdeploy.facts.device import Accelerator
from llmdeploy.inventory import Inventory
from llmdeploy.model import ModelShape
from llmdeploy.plan.refusal import changed
from llmdeploy.service import ModelSource, Service
from llmdeploy.store import Manifest, Model
from llmdeploy.store import Source as ModelOrigin

GIB = 2**30
SHAPE = ModelShape(
    architecture="LlamaForCausalLM", layers=30, hidden_size=576, intermediate_size=1536,
    attention_heads=9, kv_heads=3, head_dim=64, vocabulary_size=49152, max_positions=8192,
    tied_embeddings=True, dtype="bfloat16",
)  # fmt: skip
EMBEDDING = 49152 * 576
MATRIX = 30 * (2 * 576**2 + 2 * 192 * 576 + 3 * 1536 * 576)
MANIFEST = Manifest(
    schema=1, id="smollm2", source=ModelOrigin(kind="folder", name="given"), created_s=0.0,
    files=(), architecture="LlamaForCausalLM", dtype="bfloat16", parameters=134_515_008,
    embedding_parameters=EMBEDDING, matrix_parameters=MATRIX, weights_bytes=269_030_016,
    shape=SHAPE,
)  # fmt: skip
MODEL = Model(manifest=MANIFEST, folder="/srv/models/smollm2")
INVENTORY = Inventory.model_validate_json("{}")
H100 = Accelerator(
    vendor="nvidia", index=0, name="NVIDIA H100 80GB HBM3", uuid=None, pci_address=None,
    memory_total_bytes=80 * GIB, memory_free_bytes=80 * GIB, compute_capability="9.0",
    driver_version="550.54", uncorrected_errors=0,
)  # fmt: skip
FACTS: dict[str, Any] = {
    "cpu_cores": 2,
    "cpu_ids": (0, 1),
    "cpu_quota_cores": None,
    "memory_total_bytes": 24 * GIB,
    "memory_limit_bytes": None,
    "memory_read_bytes_per_s": None,
    "core_matmul_flops_per_s": None,
    "bitsandbytes_devices": ("cpu",),
    "torch_cuda_devices": 0,
    "accelerators": (),
}


def facts(**changes: Any) -> HostFacts:
    """A host of 2 cores and 24 GiB without measured speeds; `changes` are its facts."""
    values = FACTS | changes
    sources = tuple(Source(fact=name, tool="test", at_s=0.0) for name in values)
    asked = Asked(
        python="python", state_root="/s", model_store="/m", service="chat", model="smollm2",
        measured=False,
    )  # fmt: skip
    return HostFacts(
        host="local", asked=asked, collected_s=0.0, duration_s=0.0, sources=sources, **values
    )


def bundle(**changes: Any) -> Bundle:
    return Bundle(schema=1, llmdeploy="0", hosts=(facts(**changes),))


def service(**parts: dict[str, Any]) -> Service:
    """The default service for SmolLM2 at 20,000 requests a day; `parts` change its parts."""
    made = Service(schema=1, cluster="cluster.yaml", model=ModelSource(id="smollm2"))
    made = changed(made, "workload", requests_per_day=20_000)
    for part, values in parts.items():
        made = changed(made, part, **values)
    return made


def manifest(**shape: int) -> Manifest:
    """A model with other sizes, its parameters counted anew."""
    sizes = SHAPE.model_copy(update=shape)
    query, key_value = sizes.attention_heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    width = sizes.hidden_size
    layer = 2 * query * width + 2 * key_value * width + 3 * sizes.intermediate_size * width
    matrix, embedding = sizes.layers * layer, sizes.vocabulary_size * width
    total = matrix + embedding + (2 * sizes.layers + 1) * width
    return MANIFEST.model_copy(
        update={
            "shape": sizes,
            "matrix_parameters": matrix,
            "embedding_parameters": embedding,
            "parameters": total,
            "weights_bytes": 2 * total,
        }
    )


EIGHT_BILLION = manifest(
    layers=32, hidden_size=4096, intermediate_size=14336, attention_heads=32, kv_heads=8,
    head_dim=128, vocabulary_size=128256, max_positions=131072,
)  # fmt: skip
"""Llama-3-8B's sizes, its vocabulary table stored once."""
