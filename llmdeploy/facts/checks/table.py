"""The table of checks, in the order of their groups."""

from llmdeploy.facts.checks import (
    cards,
    cards_fit,
    compute,
    driver,
    exposure,
    fabric,
    faults,
    network,
    placement,
    present,
    reach,
    runtime,
    storage,
    system,
    upkeep,
)

GROUPS = (
    "os", "cpu", "memory", "storage", "network", "time", "runtime", "security", "gpu", "driver",
    "fabric", "model",
)  # fmt: skip
_MODULES = (
    system, compute, storage, network, reach, upkeep, runtime, exposure, present, faults,
    cards, cards_fit, driver, fabric,
    placement,
)  # fmt: skip
CHECKS = tuple(
    sorted(
        (check for module in _MODULES for check in module.CHECKS),
        key=lambda check: GROUPS.index(check.group),
    )
)
