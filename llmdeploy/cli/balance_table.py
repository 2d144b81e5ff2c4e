"""How the ranks of a release share memory, in lines for people."""

from llmdeploy.rollout.overview import ReleaseView
from llmdeploy.units import show_bytes, show_ratio


def balance(view: ReleaseView) -> tuple[str, ...]:
    """How evenly the ranks of a release hold memory; nothing for a single one."""
    kinds = {
        "device memory": [(p.replica, p.device_memory_bytes) for p in view.processes],
        "memory": [(p.replica, p.memory_bytes) for p in view.processes],
    }
    lines = (_balance(ranks) for ranks in kinds.values())
    found = zip(kinds, lines, strict=True)
    return tuple(f"release {view.id}: {kind}: {line}" for kind, line in found if line)


def _balance(ranks: list[tuple[str, int | None]]) -> str:
    """Empty where fewer than two tell."""
    told = {name: size for name, size in ranks if size is not None}
    if len(told) < 2:
        return ""
    shown = ", ".join(f"{name} {show_bytes(told[name])}" if name in told else f"{name} -"
                      for name, _ in ranks)  # fmt: skip
    most, least_bytes = max(told, key=lambda name: told[name]), min(told.values())
    more = f"; {most} has {show_ratio(told[most] / least_bytes - 1)} more than the least"
    return shown + (more if least_bytes else "")
