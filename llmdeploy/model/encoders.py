"""Weights of the encoders of images and sound and of their projectors, counted from the config."""

from llmdeploy.model.keys import Keys

VISION_SECTIONS = ("vision_config", "visual", "vision_tower_config", "vit_config")
AUDIO_SECTIONS = ("audio_config", "audio_tower_config", "sound_config")
GATED_VISION = ("pixtral", "qwen2_5_vl", "dots", "gemma4_vision", "moonvit_gated")
SIGLIP = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
          "num_attention_heads": 12, "patch_size": 16, "image_size": 224}  # fmt: skip
WHOLE = {"gemma3n": 980_000_000, "phi4mm": 1_740_000_000, "phi4_multimodal": 1_470_000_000}
"""Encoders whose configs state no sizes, with their adapters, weights.
Source: model cards of Gemma 3n (MobileNetV5 of 300M, a speech encoder of 680M) and
Phi-4-multimodal (5.57B in all)."""
CLIP_LARGE_336 = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14,
    "image_size": 336, "model_type": "clip_vision_model",
}  # fmt: skip
"""LLaVA 1.5 names its tower openai/clip-vit-large-patch14-336; that model's config."""


def encoder_parameters(keys: Keys, *, kind: str, hidden_size: int) -> int:
    """Weights of all encoders, counts; 0 for a text model."""
    whole = WHOLE.get(kind.removesuffix("_text"))
    if whole is not None and is_multimodal(keys):
        return whole
    total = 0
    vision = keys.section(*VISION_SECTIONS)
    if vision is None and keys.text("mm_vision_tower"):
        vision = Keys(dict(CLIP_LARGE_336), keys.place)
    if vision is not None and not keys.flag("language_model_only"):
        total += _vision(vision, keys, kind, hidden_size)
    audio = keys.section(*AUDIO_SECTIONS)
    if audio is not None:
        total += _audio(audio, hidden_size)
    return total


def is_multimodal(keys: Keys) -> bool:
    """Whether the configuration has a part for pictures or sound."""
    return keys.section(*VISION_SECTIONS, *AUDIO_SECTIONS) is not None or keys.has(
        "mm_vision_tower", "vision_soft_tokens_per_image", "embd_layer"
    )


def _vision(vision: Keys, keys: Keys, kind: str, hidden_size: int) -> int:
    named = vision.text("model_type") or kind
    if named.startswith(("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen3_vl", "qwen3_5")):
        return _qwen(vision, named, hidden_size)
    if named.startswith("mllama"):
        return _mllama(vision, hidden_size)
    if named.startswith(("glm4v", "glm_ocr")):
        return _glm(vision, hidden_size)
    width, depth = _width(vision), _depth(vision)
    gated = named.startswith(GATED_VISION) or kind.startswith("dots")
    inner = vision.count("intermediate_size", default=4 * width)
    layer = 4 * width * width + (3 if gated else 2) * width * inner
    patch = vision.count("patch_size", default=14)
    image = vision.count("image_size", default=0, least=0)
    embedding = 3 * patch * patch * width + (image // patch) ** 2 * width
    embedding += 2 * vision.count("position_embedding_size", default=0, least=0) * width
    if not gated:
        layer += 4 * width + inner + width + 4 * width  # biases, two norms with biases
    return depth * layer + embedding + _projector(keys, named, width, hidden_size)


def _projector(keys: Keys, named: str, width: int, hidden_size: int) -> int:
    if named.startswith(("siglip", "gemma3", "gemma4")) and keys.text("text_model_type").startswith(
        "gemma"
    ):
        return width * hidden_size + width
    if named.startswith("dots"):
        merged = 4 * width
        return merged * merged + merged * hidden_size
    merge = keys.count("spatial_merge_size", default=1)
    patches = merge * merge * width * width if merge > 1 else 0
    return patches + width * hidden_size + hidden_size * hidden_size


def _qwen(vision: Keys, named: str, hidden_size: int) -> int:
    width, depth = _width(vision), _depth(vision)
    merged = width * vision.count("spatial_merge_size", default=2) ** 2
    out = vision.count("out_hidden_size", default=hidden_size)
    out = hidden_size if named.startswith("qwen2_vl") else out
    patch = vision.count("patch_size", default=14) ** 2 * 3
    patch *= vision.count("temporal_patch_size", default=2)
    merger = merged * merged + merged + merged * out + out
    if named.startswith("qwen2_5"):
        inner = vision.count("intermediate_size", default=3420)
        layer = 4 * width * width + 4 * width + 3 * width * inner + 2 * inner + width + 2 * width
        return depth * layer + patch * width + merger + width
    inner = vision.count("intermediate_size", default=4 * width)
    layer = 4 * width * width + 4 * width + 2 * width * inner + inner + width + 4 * width
    if named.startswith("qwen2_vl"):
        return depth * layer + patch * width + merger + 2 * width
    positions = vision.count("num_position_embeddings", default=2304) * width
    mergers = merger + 2 * width
    if named.startswith("qwen3_vl"):
        deep = vision.items("deepstack_visual_indexes")
        mergers += (len(deep) or 3) * (merger + 2 * merged)
    return depth * layer + patch * width + width + positions + mergers


def _glm(vision: Keys, hidden_size: int) -> int:
    """GLM-4V: blocks whose MLP has the output's width, a convolution of 2 x 2 patches, a merger
    whose MLP has the intermediate width.

    Source: transformers 5.24 `Glm4vVisionMlp`, `Glm4vVisionPatchMerger`.
    """
    width, depth = _width(vision), _depth(vision)
    out = vision.count("out_hidden_size", default=hidden_size)
    inner = vision.count("intermediate_size", default=13696)
    patch = vision.count("patch_size", default=14) ** 2 * 3
    patch *= vision.count("temporal_patch_size", default=2)
    merge = vision.count("spatial_merge_size", default=2) ** 2
    positions = (vision.count("image_size", default=336) // 14) ** 2 * width
    layer = 4 * width * width + 3 * width * out + 2 * width
    merger = merge * width * out + out + out * out + 3 * out * inner + 2 * out
    return depth * layer + patch * width + positions + merger + 3 * width


def _mllama(vision: Keys, hidden_size: int) -> int:
    width, inner = _width(vision), vision.count("intermediate_size", default=5120)
    layer = 4 * width * width + 2 * width * inner + inner + width + 4 * width
    depth = _depth(vision) + vision.count("num_global_layers", default=8)
    patches = (
        vision.count("image_size", default=560) // vision.count("patch_size", default=14)
    ) ** 2
    tiles = vision.count("max_num_tiles", default=4)
    ratios = 9  # of tile arrangements, 0 for none
    positions = (patches + 1) * width * (1 + ratios * tiles) + 2 * ratios * tiles * width
    projector = vision.count("vision_output_dim", default=7680) * hidden_size + hidden_size
    return depth * layer + positions + 3 * 14 * 14 * width + projector


def _audio(audio: Keys, hidden_size: int) -> int:
    width = audio.count("d_model", default=audio.count("hidden_size", default=1280))
    depth = audio.count("encoder_layers", default=audio.count("num_hidden_layers", default=32))
    inner = audio.count(
        "encoder_ffn_dim", default=audio.count("intermediate_size", default=4 * width)
    )
    layer = 4 * width * width + 3 * width + 2 * width * inner + inner + width + 4 * width
    mel = audio.count("num_mel_bins", default=128)
    front = 3 * mel * width + 3 * width * width + 2 * width
    positions = audio.count("max_source_positions", default=1500) * width
    return depth * layer + front + positions + 2 * width + width * hidden_size + hidden_size


def _width(section: Keys) -> int:
    return section.count("embed_dim", default=section.count("hidden_size", default=1152))


def _depth(section: Keys) -> int:
    return section.count("depth", default=section.count("num_hidden_layers", default=27))
