"""What a model is, as far as memory and compute care: sizes, layers, parameters, weight format."""

from llmdeploy.model.config import from_config
from llmdeploy.model.format_config import weight_format
from llmdeploy.model.formats import in_mixed_precision, suited
from llmdeploy.model.pooling import as_embedding, named_embedding
from llmdeploy.model.shape import (
    AttentionKind,
    CacheKind,
    CacheLayers,
    Experts,
    ModelShape,
    Parameters,
    Part,
    PartBits,
    WeightFormat,
    is_pooling_architecture,
)
from llmdeploy.model.weights import active_parameters, expert_share, weights_bytes

__all__ = [
    "AttentionKind", "CacheKind", "CacheLayers", "Experts", "ModelShape", "Parameters", "Part",
    "PartBits", "WeightFormat", "active_parameters", "as_embedding", "expert_share",
    "from_config", "in_mixed_precision", "is_pooling_architecture", "named_embedding", "suited",
    "weight_format", "weights_bytes",
]  # fmt: skip
