"""Three booted hosts that the tests of a file share."""

import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .bed import Bed
from .build import Built, build
from .cluster_story import MODEL, ROOT
from .needs import need_compiler, need_nspawn


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The fake driver and the clock that is wrong."""
    need_compiler()
    return build(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """node1, node2 and node3; a test leaves them as it found them."""
    need_nspawn()
    folder: pathlib.Path = tmp_path_factory.mktemp("bed") / "b"
    with Bed(folder, size=3, disk="300m") as made:
        print(f"3 hosts booted in {made.boot_s:.1f} s")
        yield made


@pytest.fixture(scope="session")
def padded_store(
    model_store: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """The store with the model that two ranks can share, made once."""
    if not (model_store / MODEL / "manifest.json").exists():
        folder = tmp_path_factory.mktemp("padded") / "model"
        source = model_store / "smollm2-135m-instruct"
        for command in (
            ["tests.lab.padded", str(source), str(folder)],
            ["llmdeploy", "models", "add", MODEL, "--folder", str(folder), "--store",
             str(model_store), "--yes"],
        ):  # fmt: skip
            subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)
    return model_store
