"""Words that a line must hold to match a pattern: long logs are searched for those first."""

import re
from collections.abc import Iterator

SHORTEST = 4
"""Shorter words stand on too many lines to spare anything."""
_PIECE = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[a-zA-Z]+\)|\(\?<?[:=!]|[()|]|.", re.DOTALL
)
_QUANTIFIER = re.compile(r"[?*+]\??|\{\d*,?\d*\}\??")


def literals(pattern: str) -> tuple[str, ...] | None:
    """One word for each alternative, of which a matching line holds one; None: not to be told.

    The longest run of plain characters outside of groups. A pattern that ignores case has none.
    """
    if "(?i)" in pattern:
        return None
    words = tuple(max(_runs(branch), key=len, default="") for branch in _branches(pattern))
    return words if all(len(word) >= SHORTEST for word in words) else None


def _pieces(pattern: str) -> Iterator[str]:
    """Escapes, classes, group openings and single characters; a quantifier is a piece."""
    at = 0
    while at < len(pattern):
        quantifier = _QUANTIFIER.match(pattern, at) if at else None
        piece = quantifier or _PIECE.match(pattern, at)
        assert piece is not None, "every character is a piece"
        yield piece[0]
        at = piece.end()


def _branches(pattern: str) -> list[list[str]]:
    """The pieces of each alternative at the top."""
    depth, branches = 0, [[""]]
    for piece in _pieces(pattern):
        if piece == "|" and depth == 0:
            branches.append([""])
            continue
        depth += _deeper(piece)
        branches[-1].append(piece)
    return branches


def _runs(pieces: list[str]) -> Iterator[str]:
    depth, run = 0, ""
    for piece, after in zip(pieces, [*pieces[1:], ""], strict=True):
        depth += _deeper(piece)
        if depth == 0 and _plain(piece) and not _QUANTIFIER.fullmatch(after):
            run += piece.removeprefix("\\")
            continue
        yield run
        run = ""
    yield run


def _deeper(piece: str) -> int:
    return (piece.startswith("(") and not piece.endswith(")")) - (piece == ")")


def _plain(piece: str) -> bool:
    """Whether the piece is one character that stands for itself."""
    if piece.startswith("\\"):
        return not piece[1].isalnum()
    return len(piece) == 1 and piece not in "()|^$." and not _QUANTIFIER.fullmatch(piece)
