"""The programs that run on hosts as one file, under its content's hash: sent once a version."""

import hashlib
import importlib.resources
import io
import zipfile

from llmdeploy.release.site import Station

_MAIN = b"import sys\nfrom llmdeploy.onhost.main import main\nsys.exit(main(sys.argv[1:]))\n"
_DATE = (1980, 1, 1, 0, 0, 0)
"""The same content is the same file, whenever it is made."""


def archive() -> bytes:
    """A zip file that Python runs; the same code gives the same bytes."""
    folder = importlib.resources.files("llmdeploy.onhost")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".py"))
    files = {"__main__.py": _MAIN, "llmdeploy/__init__.py": b""}
    files |= {f"llmdeploy/onhost/{name}": folder.joinpath(name).read_bytes() for name in names}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in files.items():
            target.writestr(zipfile.ZipInfo(name, _DATE), content)
    return made.getvalue()


def path(station: Station, content: bytes) -> str:
    """Where that archive lies on the host."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    return f"{station.layout.root.rpartition('/')[0]}/.programs/onhost-{digest}.pyz"


def bring(station: Station, content: bytes) -> str:
    """The archive's path on the host, where it lies now."""
    target = path(station, content)
    station.shell.create(target, content, mode=0o444)
    return target
