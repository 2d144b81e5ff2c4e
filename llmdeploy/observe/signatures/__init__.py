"""Known failures by their log lines, and what a log says went wrong first."""

from llmdeploy.observe.signatures.catalogue import (
    Kind,
    Severity,
    Signature,
    catalogue,
    signature,
)
from llmdeploy.observe.signatures.find import Cause, causes, diagnose, first_cause

__all__ = [
    "Cause", "Kind", "Severity", "Signature", "catalogue", "causes", "diagnose", "first_cause",
    "signature",
]  # fmt: skip
