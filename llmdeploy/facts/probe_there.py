"""Sent as text to the host's Python for `--quick`: finds the engine's packages, imports none.

    python -c PROGRAM MODEL_FOLDER MEASURE

Prints the JSON lines of probe_imports, without durations. Importing torch and transformers takes
6 to 7 s of a core; finding them reads names of folders alone. What torch was built for stands in
its version.py.
"""

from __future__ import annotations

import os
import sys

from llmdeploy.facts.probe_show import show

NEEDED = ("torch", "transformers", "safetensors", "accelerate", "uvicorn", "psutil", "bitsandbytes")


def origin(name: str) -> str | None:
    """The file that an import would load; None where there is none. Nothing is imported."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None)
        if spec is not None:
            return spec.origin or ""
    return None


def built_for(file: str) -> str | None:
    """CUDA or ROCm version of torch; None: built without.

    Lines are `cuda: Optional[str] = '12.8'`, in older ones `cuda = '11.8'`.
    Source: torch 1.13 to 2.13, tools/generate_torch_version.py.
    """
    found: dict[str, str] = {}
    with open(file, encoding="utf-8") as text:
        for line in text:
            name, equals, value = line.partition("=")
            found[name.partition(":")[0].strip()] = value.strip().strip("'\"") if equals else ""
    if "cuda" not in found:
        raise ValueError(f"{file} does not tell")
    versions = [found.get(name, "None") for name in ("cuda", "hip")]
    return next((version for version in versions if version != "None"), None)


def main() -> None:
    show("untried")
    for name in NEEDED:
        place = origin(name)
        error = None if place is not None else f"ModuleNotFoundError: No module named {name!r}"
        show("import", at="begin", name=name, duration_s=None, error=None)
        show("import", at="end", name=name, duration_s=None, error=error)
        if name == "torch" and place:
            try:
                show("built", version=built_for(os.path.join(os.path.dirname(place), "version.py")))
            except (OSError, ValueError) as caught:
                show("note", words=str(caught))


main()
