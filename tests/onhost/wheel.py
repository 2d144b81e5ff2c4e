"""Wheels made here: small, without code, of any name and version."""

import pathlib
import zipfile


def write_wheel(folder: pathlib.Path, name: str, version: str, *, needs: str | None = None) -> None:
    """A wheel that every Python 3 takes; `needs` is a requirement of its own."""
    info = f"{name}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {needs}"] if needs else []
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in (*files.items(), (f"{info}/RECORD", record)):
            wheel.writestr(path, text)
