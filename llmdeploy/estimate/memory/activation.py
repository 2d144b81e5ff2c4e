"""What a forward pass and the sampler need beside weights and cache, in bytes of one device."""

from dataclasses import dataclass

from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.layers import attention_parallel, dtype_bytes
from llmdeploy.model import ModelShape, is_pooling_architecture

SORTED_LOGIT_BYTES = 38.9
"""A logit's bytes at the sampler's peak where top-p sorts: float32 copies, indices, sums.

Source: our fit over 11 public launch logs that print the peak (V0 and V1 to 0.12, 50k to 201k
words, 256 to 1024 requests): 38.5 to 39.6."""
PLAIN_LOGIT_BYTES = 10.0
"""The same where it does not sort (Triton top-k top-p, FlashInfer).

Source: our fit over 8 public launch logs of 0.17 to 0.22: 5 to 16."""
BUILT_LOGIT_BYTES = 20.0
"""Between the two, where the version has both."""
UNSAID_LOGIT_BYTES = 30.0
"""Where the version is not known. Source: of 12 such public launches 8 sorted."""
ENCODER_BYTES = 0.55 * 2**30
ENCODER_TOKEN_BYTES = 0.2 * 2**20
"""An image encoder's peak: a constant and a part for each token of the step.

Source: as `encoder_bytes`."""
RESIDUAL_WIDTHS = 4
"""Hidden-wide tensors alive in an MLP: residual, its norm, input and output.

Source: our check against 6 logs that print the peak of long prefills (128 to 131,072 tokens)."""
MLP_WIDTHS = 3
"""Gate, up and their product. Source: as above; llama's MLP."""


PAGE_ENCODER_BYTES = 1.8 * 2**30
PAGE_ENCODER_TOKEN_BYTES = 0.3 * 2**20
"""The same where one image may take 16,384 tokens. Source: 4 public logs of Qwen-VL models."""
PAGE_ARCHITECTURES = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the largest step holds, and how the engine's version computes it."""

    batched_tokens: int
    sequences: int
    logit_bytes: float = PLAIN_LOGIT_BYTES
    shares_expert_buffers: bool = True
    """First and last product of the experts in one buffer."""
    profiles_encoder: bool = True


def forward_bytes(case: Case, tokens: int, *, shares_expert_buffers: bool = True) -> float:
    """Peak of one layer: tokens x element x (3 x intermediate / TP + 4 x hidden); of a mixture
    instead every visited expert's products, also of experts that other ranks hold."""
    mixture = _mixture_width(case, shared=shares_expert_buffers)
    widened = _dequantised_bytes(case, tokens)
    return tokens * dtype_bytes(case) * max(_dense_width(case), mixture) + widened


def _dequantised_bytes(case: Case, tokens: int) -> float:
    """bitsandbytes widens a layer's weights to 16 bits and copies the product of each of its parts.

    Source: vLLM 0.5 to 0.11 `BitsAndBytesLinearMethod._apply_4bit_weight`.
    """
    held, shape = case.weight_format, case.shape
    if held is None or held.method != "nf4":
        return 0.0
    columns = 2 * shape.intermediate_size / case.tensor_parallel
    return (shape.hidden_size + tokens) * columns * dtype_bytes(case)


def _dense_width(case: Case) -> float:
    shape, tp = case.shape, case.tensor_parallel
    heads = shape.attention_heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim
    mlp = MLP_WIDTHS * shape.intermediate_size / tp
    return max(mlp, 2 * heads / attention_parallel(case)) + RESIDUAL_WIDTHS * shape.hidden_size


def _mixture_width(case: Case, *, shared: bool) -> float:
    """Experts x (2 x intermediate / TP and hidden, the larger or both, + intermediate / TP), the
    shared experts' output, and 8-bit copies of what both products read where they are in 8 bits.

    Source: vLLM 0.8 and 0.10 `fused_experts_impl`, intermediate_cache1 to 3,
    `moe_kernel_prepare_input`; `DeepseekV2MoE.forward`.
    """
    experts, hidden = case.shape.experts, case.shape.hidden_size
    if experts is None:
        return 0.0
    inner = experts.intermediate_size / (1 if case.expert_parallel else case.tensor_parallel)
    products = max(2 * inner, hidden) if shared else 2 * inner + hidden
    width = experts.active * (products + inner) + RESIDUAL_WIDTHS * hidden
    if experts.shared_intermediate_size:
        width += hidden
    held = case.weight_format
    copied = held is not None and held.stored_bits("routed_experts") and held.activation_bits == 8
    return width + ((experts.active * inner + hidden) / 2 if copied else 0.0)


def sampler_bytes(shape: ModelShape, sequences: int, *, logit_bytes: float) -> float:
    """Logits of the step's requests with all that the sampler makes of them; none where the
    model only embeds."""
    if is_pooling(shape):
        return 0.0
    return sequences * shape.vocabulary_size * logit_bytes


def is_pooling(shape: ModelShape) -> bool:
    """Whether the model gives vectors or scores, no tokens."""
    return is_pooling_architecture(shape.architecture)


def encoder_bytes(case: Case, load: Load) -> float:
    """Peak of the encoder of images or sound over the largest step: a constant and a share of
    the tokens. Mllama's attends from every request of the step.

    Source: our fit over 12 public launch logs of 7 multimodal families (0.7 to 10.3 GiB);
    vLLM 0.6 to 0.8 `mllama.py`: 4 tiles x 1,601 vectors of 7,680.
    """
    if not case.shape.multimodal:
        return 0.0
    if case.shape.architecture.startswith("Mllama"):
        return load.sequences * 4 * 1601 * 7680 * dtype_bytes(case)
    if not load.profiles_encoder:
        return 0.0
    if case.shape.architecture.startswith(PAGE_ARCHITECTURES):
        return PAGE_ENCODER_BYTES + PAGE_ENCODER_TOKEN_BYTES * load.batched_tokens
    return ENCODER_BYTES + ENCODER_TOKEN_BYTES * load.batched_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What each part of a step needs at most; they do not overlap."""

    forward_bytes: float
    sampler_bytes: float
    encoder_bytes: float

    @property
    def peak_bytes(self) -> float:
        return max(self.forward_bytes, self.sampler_bytes, self.encoder_bytes)


def peaks(case: Case, load: Load) -> Peaks:
    """Peaks of forward pass, sampler and encoder."""
    return Peaks(
        forward_bytes=forward_bytes(
            case, load.batched_tokens, shares_expert_buffers=load.shares_expert_buffers
        ),
        sampler_bytes=sampler_bytes(
            case.shape,
            min(load.sequences, load.batched_tokens),
            logit_bytes=load.logit_bytes,
        ),
        encoder_bytes=encoder_bytes(case, load),
    )
