"""Environments made on hosts from wheels: alike on all, whole or not there, never changed."""

import pathlib
import subprocess
import sys

import pytest

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.inventory import Environment
from llmdeploy.release import environments
from llmdeploy.release.environments import Made
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Station
from llmdeploy.release.wheels import read_wheels
from tests.onhost.wheel import write_wheel
from tests.release.supervision import FakeSupervisor

pytestmark = pytest.mark.end_to_end
ENGINE = Environment(name="cuda", requirements=("engine==1.0",), wheels="wheels")


@pytest.fixture
def wheels(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with an engine's wheel and that of the kernels it needs."""
    folder = tmp_path / "wheels"
    write_wheel(folder, "engine", "1.0", needs="kernels>=2")
    write_wheel(folder, "kernels", "2.1")
    return folder


def stations(folder: pathlib.Path, count: int = 2) -> tuple[Station, ...]:
    """Hosts that are folders of this machine."""
    return tuple(
        Station(
            name=f"h{number}", address="127.0.0.1", python=sys.executable,
            model_store=str(folder / f"h{number}"),
            layout=ServiceLayout(root=str(folder / f"h{number}" / ".making")),
            supervisor=FakeSupervisor(), shell=LocalShell(),
        )
        for number in range(count)
    )  # fmt: skip


def make(
    hosts: tuple[Station, ...], folder: pathlib.Path, environment: Environment = ENGINE
) -> tuple[tuple[Made, ...], list[str]]:
    told: list[str] = []
    shell = LocalShell()
    made = environments.make(
        environment, hosts, wheels=read_wheels("cuda", str(folder), shell=shell),
        report=told.append, here=shell, clock=SystemClock(),
    )  # fmt: skip
    return made, told


def test_the_second_host_gets_what_the_first_one_has_and_then_nothing_happens(tmp_path, wheels):
    first, second = stations(tmp_path)
    (_, told) = make((first,), wheels)
    assert told[0].startswith("wheels of cuda: ")
    assert "copied to 1 host(s)" in told[0]
    write_wheel(wheels, "kernels", "2.2")
    made, _ = make((first, second), wheels)
    assert [one.packages["kernels"] for one in made] == ["2.1", "2.1"]
    for one in made:
        argv = [f"{one.folder}/bin/python", "-c", "import engine; print(engine.VERSION)"]
        assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "1.0\n"
    assert make((first, second), wheels) == (made, [])
    assert sorted(path.name for path in (tmp_path / "h1").iterdir()) == [
        ".objects", ".programs", ENGINE.title, f"{ENGINE.title}.lock", f"{ENGINE.title}.log",
    ]  # fmt: skip
    objects = {path.name for path in (tmp_path / "h1" / ".objects").iterdir()}
    assert objects <= {"transfer.json", "transfer.log"}


def test_what_a_killed_command_left_is_made_anew(tmp_path, wheels):
    (host,) = stations(tmp_path, 1)
    half = pathlib.Path(environments.folder_on(host, ENGINE.title))
    half.mkdir(parents=True)
    (half / "rubbish").write_text("x")
    assert environments.look(ENGINE.title, host) is None
    make((host,), wheels)
    assert not (half / "rubbish").exists()
    assert environments.look(ENGINE.title, host) is not None


def test_a_missing_wheel_leaves_nothing_and_is_named_with_what_to_do(tmp_path, wheels):
    (host,) = stations(tmp_path, 1)
    (wheels / "kernels-2.1-py3-none-any.whl").unlink()
    with pytest.raises(Refused, match=r"h0: .*No matching distribution found for kernels") as no:
        make((host,), wheels)
    assert "put the wheel that is missing, for h0's Python" in no.value.fix
    assert not pathlib.Path(environments.folder_on(host, ENGINE.title)).exists()


def test_one_that_runs_is_not_removed(tmp_path):
    (host,) = stations(tmp_path, 1)
    folder = pathlib.Path(environments.folder_on(host, ENGINE.title))
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    argv = [f"{folder}/bin/python", "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        engine.stdout.readline()
        with pytest.raises(Refused, match=f"process {engine.pid} runs from it"):
            environments.remove(ENGINE.title, host)
        engine.kill()
    assert environments.remove(ENGINE.title, host)
    assert not environments.remove(ENGINE.title, host)
    assert list((tmp_path / "h0").iterdir()) == []
