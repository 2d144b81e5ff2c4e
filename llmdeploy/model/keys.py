"""Reads a config.json's keys: several names for one idea, sections in sections, errors by path."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from llmdeploy.errors import InputError

TEXT_SECTIONS = (
    "text_config", "llm_config", "language_config", "language_model_config", "thinker_config",
)  # fmt: skip
"""Where wrappers of images or sound keep the language model. Source: transformers 5.24 and the
remote code of InternVL, DeepSeek-VL2, Phi-4-multimodal."""
NAMES = {
    "hidden_size": ("n_embd", "d_model", "dim", "model_dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": (
        "num_kv_heads", "n_head_kv", "n_kv_heads", "num_query_groups", "num_attention_groups",
    ),
    "intermediate_size": ("ffn_hidden_size", "ffn_dim", "n_inner", "d_ff", "hidden_dim"),
    "vocab_size": ("padded_vocab_size", "n_vocab"),
    "max_position_embeddings": (
        "seq_length", "n_positions", "max_seq_len", "max_sequence_length", "model_max_length",
        "n_ctx", "context_length", "max_position_embedding",
    ),
    "head_dim": ("kv_channels", "attention_head_dim", "d_head", "head_size"),
    "experts": (
        "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
        "num_routed_experts",
    ),
    "active_experts": (
        "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "top_k_experts",
        "moe_topk", "moe_k", "moe_top_k", "num_selected_experts",
    ),
    "expert_size": (
        "moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "expert_dim",
    ),
    "shared_experts": (
        "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts",
    ),
    "shared_size": (
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
        "shared_intermediate_size", "share_expert_dim",
    ),
}  # fmt: skip
"""Older and remote-code names of one idea. Source: `attribute_map` of the configuration classes of
transformers 5.24; configs of ChatGLM, Qwen 1, Baichuan, MPT, DBRX, ERNIE, Hunyuan, Bailing."""


LEFT_OUT = {
    "llama": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
              "num_attention_heads": 32},
    "mistral": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": 8},
}  # fmt: skip
"""What a wrapper's language model has where its section states no size, as LLaVA's does.
Source: defaults of transformers 5.24 `LlamaConfig` and `MistralConfig`."""


@dataclass(frozen=True, slots=True)
class Keys:
    """One section of a config, its keys looked up by any of their names."""

    values: dict[str, Any]
    place: str

    def find(self, key: str) -> Any:
        """The value under `key` or another of its names; None where it is left out."""
        for name in (key, *NAMES.get(key, ())):
            value = self.values.get(name)
            if value is not None:
                return value
        return None

    def has(self, *keys: str) -> bool:
        return any(self.values.get(key) is not None for key in keys)

    def count(self, key: str, *, default: int | None = None, least: int = 1) -> int:
        """A whole number; InputError with the key's path where it is left out or no count."""
        value = self.find(key)
        value = default if value is None else value
        if isinstance(value, list) and value:  # per layer, such as ERNIE's expert sizes
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(key, value, f"a whole number of at least {least}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.find(key)
        return float(value) if isinstance(value, int | float) else default

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self.values.get(key)
        return default if value is None else bool(value)

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) else default

    def items(self, key: str) -> tuple[Any, ...]:
        """The list under `key`; empty where it is left out or no list."""
        value = self.values.get(key)
        return tuple(value) if isinstance(value, list | tuple) else ()

    def section(self, *keys: str) -> "Keys | None":
        """The first of these sections that is there, with its path."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, dict):
                return Keys(value, f"{self.place}: {key}")
        return None

    def with_defaults(self, defaults: dict[str, Any]) -> "Keys":
        """The same keys, with what this family's configs leave out."""
        missing = {key: value for key, value in defaults.items() if self.find(key) is None}
        return Keys({**self.values, **missing}, self.place) if missing else self

    def wrong(self, key: str, value: object, needed: str) -> InputError:
        found = "nothing" if value is None else json.dumps(value, default=str)[:80]
        names = NAMES.get(key, ())
        listed = f" (nor {', '.join(names[:3])})" if value is None and names else ""
        return InputError(
            f"{self.place}: {key}: found {found}{listed}, needed {needed}",
            fix=f"copy the model's config.json again from where it was published,"
            f" or add {key} to {self.place}",
        )


def flattened(config: dict[str, Any], place: str) -> Keys:
    """The language model's keys over the wrapper's; encoders and quantisation stay sections."""
    merged = dict(config)
    for name in _text_sections(config):
        inner = merged.get(name)
        if not isinstance(inner, dict):
            continue
        inner = _whole_text(name, inner, merged)
        kept = {k: v for k, v in inner.items() if k not in ("architectures", "quantization_config")}
        if "model_type" in kept:
            merged["text_model_type"] = kept.pop("model_type")
        merged.update({k: v for k, v in kept.items() if v is not None})
        if not merged.get("architectures"):
            merged["architectures"] = inner.get("architectures")
        if inner.get("quantization_config") and not merged.get("quantization_config"):
            merged["quantization_config"] = inner["quantization_config"]
    for name in ("attn_config", "ffn_config"):  # DBRX and MPT
        inner = merged.get(name)
        if isinstance(inner, dict):
            merged = {**inner, **merged}
    if "kv_n_heads" in merged:
        merged.setdefault("num_key_value_heads", merged["kv_n_heads"])
    return Keys(merged, place)


def _whole_text(name: str, inner: dict[str, Any], wrapper: dict[str, Any]) -> dict[str, Any]:
    """A language model's section with what lies deeper in it or was left out."""
    if name == "thinker_config":
        inner = {**inner, **(inner.get("text_config") or {})}
    if "hidden_size" in {**wrapper, **inner}:
        return inner
    return {**LEFT_OUT.get(str(inner.get("model_type")), {}), **inner}


def _text_sections(config: dict[str, Any]) -> Iterable[str]:
    return (name for name in TEXT_SECTIONS if isinstance(config.get(name), dict))
