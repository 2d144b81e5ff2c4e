"""The probe's answer, cut into its sections."""

import re
from dataclasses import dataclass

SIGNALS = 64
"""Most that Linux has; a tool may also end with 255."""
TIMED_OUT = {124, 137}
"""Exit codes of `timeout`: the tool was ended, or killed."""
UNTRIED = "not tried: --quick"
"""Why a fact that only real imports tell is unknown."""
_MARK = re.compile(r"^@mark (@\S+)$", re.MULTILINE)
_BEGIN = re.compile(r"@begin (\S+) (\d+) (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What one tool said: `text` is its stdout and stderr together."""

    name: str
    tool: str
    at_s: float
    exit_code: int
    text: str

    @property
    def ended(self) -> str:
        """How it ended, in words."""
        if self.exit_code in TIMED_OUT:
            return "did not end in time and was stopped"
        if 128 < self.exit_code <= 128 + SIGNALS:
            return f"was killed by signal {self.exit_code - 128}"
        return f"ended with exit code {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """In place of a value that could not be had."""

    reason: str


def marked(text: str) -> str:
    """The probe's raw answer with `|` before every line but its own, which begin with `@`.

    Its first line `@mark MARK` tells what its own lines begin with; what a login prints before that
    is dropped.
    """
    found = _MARK.search(text)
    if found is None:
        return text
    mark, body = found[1], text[found.end() :]
    lines = body.replace("\n", "\n|").replace(f"\n|{mark}", "\n@")
    return lines.removeprefix("\n")


def split(text: str) -> dict[str, Section]:
    """Sections by name; one that the probe did not finish is left out."""
    sections: dict[str, Section] = {}
    begun: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("|"):
            lines.append(line[1:])
        elif match := _BEGIN.fullmatch(line):
            begun, lines = match, []
        elif line.startswith("@end ") and begun is not None:
            section = _whole(begun, lines, exit_code=int(line.removeprefix("@end ")))
            sections[section.name] = section
            begun = None
    return sections


def _whole(begun: re.Match[str], lines: list[str], *, exit_code: int) -> Section:
    tools = [line.removeprefix("#tool ") for line in lines if line.startswith("#tool ")]
    return Section(
        name=begun[1],
        tool=tools[-1] if tools else begun[3],
        at_s=float(begun[2]),
        exit_code=exit_code,
        text="\n".join(line for line in lines if not line.startswith("#tool ")).strip("\n"),
    )
