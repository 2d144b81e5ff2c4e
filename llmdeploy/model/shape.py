"""The shape of a transformer: what its config.json says about memory and compute."""

from typing import Literal

from llmdeploy.document import Document

AttentionKind = Literal["full", "sliding"]
CacheKind = Literal["full", "sliding", "chunked", "latent", "state", "none"]
"""What a layer keeps of the past: K and V of all tokens, of the last window, of the current chunk;
one latent vector a token (MLA); a fixed state a request (Mamba, linear attention); nothing."""


Part = Literal[
    "embedding", "head", "attention", "attention_state", "dense_mlp", "routed_experts",
    "shared_experts", "other", "vision",
]  # fmt: skip
"""Of a model's weights, as quantisation tells them apart."""


class CacheLayers(Document):
    """Layers of one kind of cache. They need not be neighbours."""

    kind: CacheKind
    layers: int
    kv_heads: int = 0
    head_dim: int = 0
    """Of K."""
    value_dim: int = 0
    """Of V; 0 where K and V are one latent vector."""
    latent_dim: int = 0
    """Elements a token of a latent cache: kv_lora_rank + qk_rope_head_dim. Not divided by TP."""
    indexer_bytes: int = 0
    """Bytes a token of a sparse-attention indexer's own cache, per layer."""
    window_tokens: int = 0
    """Of sliding and chunked layers."""
    compression: int = 1
    """Tokens that share one entry of a compressed cache; the last window stays uncompressed."""
    state_elements: int = 0
    """Elements a request keeps in one `state` layer, all TP ranks together."""
    convolution_elements: int = 0
    """Of these, the short convolution's last inputs: kept in the model's dtype."""
    state_dtype: Literal["bfloat16", "float16", "float32"] | None = None
    """What the config asks for the rest of the state; None: the engine's default."""


class Experts(Document):
    """The mixture-of-experts layers."""

    layers: int
    count: int
    """Routed experts in a layer."""
    active: int
    """Routed experts that a token visits."""
    intermediate_size: int
    shared_intermediate_size: int = 0
    """All shared experts of a layer together."""
    input_size: int = 0
    """Width that the routed experts read, where it is not the model's; 0: hidden_size."""
    dense_first_layers: int = 0
    """Layers before the first mixture."""


class Parameters(Document):
    """Weights by the part of the model they belong to, counts."""

    embedding: int
    head: int
    """0 where tied to the embedding."""
    attention: int
    """With all that mixes tokens: Mamba and linear attention too."""
    dense_mlp: int
    routed_experts: int = 0
    shared_experts: int = 0
    other: int = 0
    """Norms, routers, biases, small convolutions."""
    vision: int = 0
    """Encoders of images or audio, and their projector."""
    draft: int = 0
    """Multi-token-prediction layers; engines load them only when speculating."""
    attention_kv: int = 0
    """Of attention: projections to K and V. A rank holds at least one KV head."""
    attention_whole: int = 0
    """Of attention: what every TP rank holds, such as MLA's projections to the latent vectors."""
    attention_state: int = 0
    """Of attention: Mamba and linear attention layers."""
    latent_up: int = 0
    """Of attention: MLA's projections from the latent vector; engines keep them twice."""

    @property
    def total(self) -> int:
        """All weights that are loaded without speculation."""
        return (
            self.embedding + self.head + self.attention + self.dense_mlp + self.routed_experts
            + self.shared_experts + self.other + self.vision
        )  # fmt: skip


class PartBits(Document):
    """One part in another format than the rest."""

    part: Part
    bits: float
    """Per weight, with scales."""


class WeightFormat(Document):
    """How the linear layers' weights are held."""

    method: str
    """Our word: none, fp8, fp8_block, int8, awq, gptq, nf4, mxfp4, nvfp4, w4a16, w8a8, gguf, …"""
    bits: float
    """Per weight, without scales."""
    group_size: int = 0
    """Weights that share a scale along the input; 0: one per row or tensor."""
    scale_bits: float = 0
    """What scales and zero points add to every weight."""
    activation_bits: float = 16
    """What the products are computed in."""
    kept: tuple[Part, ...] = ("embedding", "head", "other", "vision")
    """What stays in the dtype."""
    parts: tuple[PartBits, ...] = ()
    """Parts in a format of their own, in mixed checkpoints."""
    kv_cache_dtype: str | None = None
    """What the checkpoint asks for its KV cache, such as fp8."""

    def stored_bits(self, part: Part) -> float | None:
        """Bits per weight of a part with its scales; None: it stays in the dtype."""
        own = next((one.bits for one in self.parts if one.part == part), None)
        if own is not None:
            return own
        return None if part in self.kept else self.bits + self.scale_bits

    @property
    def expert_bits(self) -> float | None:
        """Bits per weight of routed experts with scales, where theirs is another format."""
        return next((one.bits for one in self.parts if one.part == "routed_experts"), None)


POOLING_ENDS = ("Model", "Embedding", "Classification")
GENERATING_ENDS = ("LMHeadModel", "ChatGLMModel", "ChatModel", "NVLM_D_Model", "OmniModel")
"""Generate although they end alike: Qwen 1, GPT-2; ChatGLM; InternVL; NVLM; Qwen-Omni."""


def is_pooling_architecture(name: str) -> bool:
    """Whether a class of that name gives vectors or scores, no tokens: it has no head."""
    return name.endswith(POOLING_ENDS) and not name.endswith(GENERATING_ENDS)


class ModelShape(Document):
    """Sizes of a decoder-only transformer. Counts are per model, not per device."""

    architecture: str
    """The class name that engines look up, such as `LlamaForCausalLM`."""
    layers: int
    hidden_size: int
    intermediate_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    vocabulary_size: int
    max_positions: int
    """The longest context the model was trained for, in tokens."""
    tied_embeddings: bool
    dtype: Literal["bfloat16", "float16", "float32"]
    """What the checkpoint's weights are stored in."""
    cache: tuple[CacheLayers, ...] = ()
    """Every layer once, by kind of cache; empty: all `layers` keep full K and V."""
    experts: Experts | None = None
    parameters: Parameters | None = None
    """Counted from the config; None where only a store's files were read."""
    weight_format: WeightFormat | None = None
    """The checkpoint's own quantisation; None: plain weights in `dtype`."""
    rotary_elements: int = 0
    """Of the tables of cos and sin that engines keep, per position; 0 where there are none."""
    multimodal: bool = False
    """Reads images or sound too."""
