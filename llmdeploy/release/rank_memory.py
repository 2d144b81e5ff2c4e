"""What a program's processes hold of their host's memory and of its cards: the ranks' balance."""

from dataclasses import dataclass

from llmdeploy.edge import Shell
from llmdeploy.errors import LlmDeployError
from llmdeploy.release.supervise import marker

ASK_TIMEOUT_S = 20.0
"""Of one host. Source: own choice: nvidia-smi takes 2 s where no driver is kept loaded."""
_ASK = """for pid in $(grep -lzsxF -e "$1" /proc/[0-9]*/environ | cut -d/ -f3); do
own=$(sed -n 's/^RssAnon:[^0-9]*\\([0-9]*\\) kB/\\1/p' "/proc/$pid/status" 2>/dev/null)
echo "process $pid $own"
done
[ "$2" = cards ] && command -v nvidia-smi >/dev/null 2>&1 || exit 0
echo cards
nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | tr -d ,"""
"""Reads counters alone: a walk over an engine's pages (smaps) would hold it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the processes of one program hold."""

    memory_bytes: int
    """Of the host, theirs alone; what they share is not in it."""
    device_memory_bytes: int | None
    """Of all its cards; None where they are not NVIDIA's, or do not tell it by process."""


def held(root: str, program: str, *, cards: bool, shell: Shell) -> Held | None:
    """None where nothing of the program runs, or its host does not answer."""
    variable = "=".join(marker(root, program))
    argv = ("sh", "-c", _ASK, "sh", variable, "cards" if cards else "-")
    try:
        return parse_held(shell.run(argv, timeout_s=ASK_TIMEOUT_S).stdout)
    except LlmDeployError:
        return None


def parse_held(text: str) -> Held | None:
    """What is held, in the text of _ASK."""
    rows = [line.split() for line in text.splitlines()]
    mine = {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == "process"}
    if not mine:
        return None
    apps = [row for row in rows if len(row) == 2 and row[0] in mine and row[1].isdigit()]
    return Held(
        memory_bytes=sum(int(size) * 1024 for size in mine.values()),
        device_memory_bytes=sum(int(row[1]) * 2**20 for row in apps) if apps else None,
    )
