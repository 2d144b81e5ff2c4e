"""The model in memory: its type, quantisation and split over processes, made fast for CPU."""

import importlib.util
import logging
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from transformers.distributed import DistributedConfig
from transformers.utils.logging import disable_progress_bar

from llmdeploy.engine import attention, layers, linear
from llmdeploy.engine.attention import CurrentStep, PageShape
from llmdeploy.engine.batch import PAGE_TOKENS
from llmdeploy.engine.settings import EngineSettings
from llmdeploy.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model ready to be batched."""

    model: Any
    weights_bytes: int
    """One copy of the weights, before any is packed beside it."""
    step: CurrentStep
    fused: PageShape | None
    """The shape of the cache's pages where the layers are ours, else None."""


def load(settings: EngineSettings) -> Loaded:
    """The model of `settings.model`; Refused where its quantisation has no support here."""
    disable_progress_bar()
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise Refused(
            "--device cuda: torch finds no CUDA device here",
            fix="check `nvidia-smi` and that torch is a CUDA build, or use --device cpu",
        )
    options = _quantization(settings)
    if settings.tensor_parallel > 1:
        options["distributed_config"] = DistributedConfig(tp_size=settings.tensor_parallel)
    elif settings.device == "cuda":
        options["device_map"] = "cuda"
    model = AutoModelForCausalLM.from_pretrained(
        settings.model, dtype=getattr(torch, settings.dtype), local_files_only=True, **options
    ).eval()
    model.requires_grad_(False)
    weights_bytes = _weights_bytes(model)
    step = CurrentStep()
    fused = None
    if settings.device == "cpu":
        attention.register()
        model.config._attn_implementation = attention.NAME
        if settings.tensor_parallel == 1 and settings.quantization == "none":
            fused = _speed_up(model, step)
    return Loaded(model=model, weights_bytes=weights_bytes, step=step, fused=fused)


def _speed_up(model: Any, step: CurrentStep) -> PageShape | None:
    """Packs the linear layers and, in the Llama family, fuses each layer (in place)."""
    if not linear.can_pack(model.dtype):
        return None
    keep_plain = linear.gemv_helps(model.dtype)
    if not layers.can_fuse(model):
        linear.pack_linears(model, keep_plain=keep_plain)
        return None
    shape = layers.page_shape(model, page_tokens=PAGE_TOKENS)
    layers.fuse(model, step=step, keep_plain=keep_plain)
    return shape


def _weights_bytes(model: Any) -> int:
    """Bytes of all distinct parameters on this rank."""
    seen = {}
    for parameter in model.parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        seen[local.data_ptr()] = local.numel() * local.element_size()
    return sum(seen.values())


def _quantization(settings: EngineSettings) -> dict[str, Any]:
    """Arguments of `from_pretrained`; Refused without bitsandbytes or its kernels."""
    if settings.quantization == "none":
        return {}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise Refused(
            f"--quantization {settings.quantization} needs bitsandbytes, which is not installed",
            fix="install llmdeploy[engine], or use --quantization none",
        )
    # It warns at every product that bf16 inputs become fp16: thousands of lines a minute.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if settings.quantization == "int8":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    compute = getattr(torch, settings.dtype)
    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute
    )
    return {"quantization_config": config}
