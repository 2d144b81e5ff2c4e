"""Sent to the host's Python with the two programs that use it: prints one JSON line a fact.

It has its own encoder since importing `json` costs as much as all the rest of a quick probe.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def show(kind: "str", **values: "Any") -> None:
    """`{"kind": …, …}` on a line of its own, at once."""
    print(encoded({"kind": kind, **values}), flush=True)  # noqa: T201  # its answer


def encoded(value: "Any") -> "str":
    """JSON of None, truth values, numbers, strings, and lists, tuples and dicts of them."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        pairs = [f"{encoded(str(key))}: {encoded(part)}" for key, part in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(encoded(part) for part in value) + "]"
    text = str(value)
    plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    return '"' + (text if plain else "".join(map(_sign, text))) + '"'


def _sign(sign: "str") -> "str":
    if " " <= sign <= "~" and sign not in '"\\':
        return sign
    code = ord(sign)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
