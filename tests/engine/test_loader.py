"""Loading: what is refused, and the manager's internals that the batch builds on."""

import inspect

import pytest
import torch
import transformers
from transformers.generation.continuous_batching import continuous_api, model_runner

from llmdeploy.engine.attention import NAME
from llmdeploy.engine.loader import load
from llmdeploy.errors import Refused

from .tiny_models import make_tiny, settings


def test_the_weights_are_counted_once_where_they_are_shared(tmp_path):
    untied = load(settings(make_tiny(tmp_path / "a"))).weights_bytes
    tied = load(settings(make_tiny(tmp_path / "b", tie_word_embeddings=True))).weights_bytes
    assert untied - tied == 128 * 64 * 4  # the head: vocabulary x hidden, fp32


def test_cpu_models_attend_by_sequence_and_need_no_gradients(tmp_path):
    model = load(settings(make_tiny(tmp_path))).model
    assert model.config._attn_implementation == NAME
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.training


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_is_refused_where_there_is_none(tmp_path):
    with pytest.raises(Refused, match="no CUDA device") as refused:
        load(settings(make_tiny(tmp_path), device="cuda"))
    assert "--device cpu" in refused.value.fix


def test_float16_loads_without_packed_layers(tmp_path):
    loaded = load(settings(make_tiny(tmp_path), dtype="float16"))
    assert loaded.model.dtype == torch.float16
    assert loaded.fused is None


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (continuous_api.ContinuousBatchingManager, "_create_batch_processor", ["self"]),
        (continuous_api.ContinuousBatchProcessor, "prepare_next_batch", ["self"]),
        (continuous_api.ContinuousBatchProcessor, "_generation_step", ["self", "model"]),
        (continuous_api.ContinuousBatchProcessor, "update_batch", ["self"]),
        (model_runner.ModelRunner, "_sample", ["self", "scores", "output_ids"]),
    ],
)
def test_the_pinned_manager_has_what_the_batch_drives(owner, name, parameters):
    assert transformers.__version__.startswith("5.24.")
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters
