"""What end-to-end tests ask for: a fresh service, or a gateway before fake engines."""

import pathlib
from collections.abc import Iterator

import pytest

from .gateway_bed import Bed
from .story import Story, free_port


@pytest.fixture
def story(tmp_path: pathlib.Path, model_store: pathlib.Path) -> Iterator[Story]:
    """A service folder; whatever the test started is stopped after it."""
    made = Story(folder=tmp_path, store=model_store, port=free_port())
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, model_store: pathlib.Path) -> Iterator[Story]:
    """A service whose good first release is live, one for all tests of a file."""
    made = Story(folder=tmp_path_factory.mktemp("served"), store=model_store, port=free_port())
    try:
        made.first_release()
        yield made
    finally:
        made.close()


@pytest.fixture
def live(served: Story) -> Iterator[Story]:
    """The live service; whatever else the test launched on it is stopped after it."""
    yield served
    served.only_good()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A real gateway before fake engines, one for all tests of a file."""
    made = Bed(tmp_path_factory.mktemp("gw"))
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.fixture
def bed(opened: Bed) -> Bed:
    """The file's gateway, as it was when it was opened."""
    opened.reset()
    return opened
