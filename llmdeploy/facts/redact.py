"""Takes keys, passwords and tokens out of what hosts print, before anything is kept of it."""

import re

HIDDEN = "<hidden>"
_NAMED = re.compile(
    r"(?i)((?:^|[\s'\"])(?:--)?(?:[a-z0-9]+[-_])*(?:api[-_]?key|password|passwd|secret|"
    r"(?:hf|auth|access|bearer)[-_]?token|token)(?:[= ]+|\s*:\s+))(?![-\s])([^\s'\",]+)"
)
"""`--api-key X`, `HF_TOKEN=X`, `password: X`; JSON keys in quotes are none of these."""
_BEARER = re.compile(r"(?i)(authorization:\s*(?:bearer|basic)\s+|bearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_IN_ADDRESS = re.compile(r"(://)[^\s/@:]*:[^\s/@]+@")
_SHAPED = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|"
    r"github_pat_[A-Za-z0-9_]{20,}|AKIA[A-Z0-9]{16}|glpat-[A-Za-z0-9_-]{16,}|"
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}|xox[abp]-[A-Za-z0-9-]{10,})"
)
"""Tokens that show by their shape: Hugging Face, OpenAI, GitHub, AWS, GitLab, JWT, Slack.
Source: the vendors' documents on secret scanning."""


_STARTS = (
    "hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "AKIA", "glpat-", "eyJ",
    "xox",
)  # fmt: skip
"""What every match of _SHAPED begins with."""
_MAYBE_NAMED = re.compile(r"(?:api[-_]?key|passw(?:or)?d|secret|token)(?:[= ]|\s*:\s)")
"""What every match of _NAMED holds, in small letters: found much faster than that."""


def redact(text: str) -> str:
    """The text with `<hidden>` in place of everything that looks like a secret."""
    if any(_begins_word(text, start) for start in _STARTS):
        text = _SHAPED.sub(HIDDEN, text)
    text = _IN_ADDRESS.sub(rf"\1{HIDDEN}@", text)
    small = text.lower()
    if "bearer" in small or "authorization" in small:
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _NAMED.sub(rf"\1{HIDDEN}", text) if _MAYBE_NAMED.search(small) else text


def _begins_word(text: str, start: str) -> bool:
    """Whether a word begins so; `disk-` is none that begins with `sk-`."""
    at = text.find(start)
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_"):
        at = text.find(start, at + 1)
    return at >= 0
