"""Staging: a model sent once, passed from host to host, checked, resumed, and no port left open."""

import json
import multiprocessing
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.release import hop, transfer
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Station
from llmdeploy.store import Model
from tests.onhost.made import random_model
from tests.release.supervision import FakeSupervisor

pytestmark = pytest.mark.end_to_end
WEIGHTS_BYTES = 24 * 2**20


@pytest.fixture
def model(tmp_path: pathlib.Path) -> Model:
    """A model of one big and one small file, in a store of its own."""
    return random_model(tmp_path / "here" / "tiny", weights_bytes=WEIGHTS_BYTES)


def stations(folder: pathlib.Path, count: int = 3) -> tuple[Station, ...]:
    """Hosts that are folders of this machine."""
    return tuple(
        Station(
            name=f"h{number}", address="127.0.0.1", python=sys.executable,
            model_store=str(folder / f"h{number}" / "models"),
            layout=ServiceLayout(root=str(folder / f"h{number}" / "state" / "chat")),
            supervisor=FakeSupervisor(), shell=LocalShell(),
        )
        for number in range(count)
    )  # fmt: skip


def bring(model: Model, hosts: tuple[Station, ...]) -> tuple[dict[str, str], list[str]]:
    told: list[str] = []
    folders = transfer.bring(
        model, hosts, report=told.append, here=LocalShell(), clock=SystemClock()
    )
    return folders, told


def same(model: Model, folder: str) -> bool:
    return all(
        pathlib.Path(folder, file.name).read_bytes()
        == pathlib.Path(model.folder, file.name).read_bytes()
        for file in model.manifest.files
    )


def programs(folder: pathlib.Path) -> list[str]:
    shown = subprocess.run(
        ["ps", "-ww", "-eo", "args="], capture_output=True, text=True, check=True
    )
    return [line for line in shown.stdout.splitlines() if str(folder) in line and " pass " in line]


def test_every_host_has_the_model_and_nothing_goes_on(tmp_path: pathlib.Path, model: Model) -> None:
    hosts = stations(tmp_path)
    folders, told = bring(model, hosts)
    assert all(same(model, folders[host.name]) for host in hosts)
    assert told[-1].startswith("model tiny: 72.0 MiB copied to 3 host(s)")
    deadline_s = time.monotonic() + 10
    while programs(tmp_path) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert programs(tmp_path) == []
    for host in hosts:
        state = json.loads(pathlib.Path(host.model_store, ".objects/transfer.json").read_text())
        assert state["done"]
        if state["port"]:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", state["port"]), 1).close()
        assert not pathlib.Path(host.model_store, ".objects/transfer.spec").exists()


def test_what_is_there_is_not_copied_again(tmp_path: pathlib.Path, model: Model) -> None:
    hosts = stations(tmp_path)
    bring(model, hosts[:2])
    folders, told = bring(model, hosts)
    assert told[-1].startswith("model tiny: 24.0 MiB copied to 1 host(s)")
    assert all(same(model, folders[host.name]) for host in hosts)
    assert bring(model, hosts)[1] == []


def test_each_host_sends_no_faster_than_the_bandwidth(tmp_path: pathlib.Path, model: Model) -> None:
    half = WEIGHTS_BYTES / 2
    hosts = tuple(replace(host, staging_bytes_per_s=half) for host in stations(tmp_path, 2))
    begun_s = time.monotonic()
    folders, _ = bring(model, hosts)
    took_s = time.monotonic() - begun_s
    print(f"{WEIGHTS_BYTES} bytes at {half:.0f} a second took {took_s:.2f} s")
    assert took_s >= 1.9
    assert all(same(model, folders[host.name]) for host in hosts)


def test_a_transfer_goes_on_where_it_stopped(tmp_path: pathlib.Path, model: Model) -> None:
    hosts = stations(tmp_path, 2)
    weights = next(f for f in model.manifest.files if f.size_bytes == WEIGHTS_BYTES)
    content = pathlib.Path(model.folder, weights.name).read_bytes()
    for host, share in ((hosts[0], 2), (hosts[1], 4)):
        objects = pathlib.Path(host.model_store, ".objects")
        objects.mkdir(parents=True)
        (objects / f"{weights.sha256}.part").write_bytes(content[: WEIGHTS_BYTES // share])
    folders, told = bring(model, hosts)
    assert all(same(model, folders[host.name]) for host in hosts)
    assert told[-1].startswith("model tiny: 30.0 MiB copied")  # 12 of 24, and 18 of 24


class SlowShell(LocalShell):
    """Reads as from a disk that is slower than any test."""

    def read_from(self, path: str, *, offset_bytes: int, limit_bytes: int) -> bytes:
        time.sleep(0.3)
        return super().read_from(path, offset_bytes=offset_bytes, limit_bytes=2**20)


def test_what_a_killed_launch_left_is_ended_and_gone_on_with(
    tmp_path: pathlib.Path, model: Model
) -> None:
    hosts = stations(tmp_path, 2)
    orders = {"report": print, "here": SlowShell(), "clock": SystemClock()}
    killed = multiprocessing.Process(target=transfer.bring, args=(model, hosts), kwargs=orders)
    killed.start()
    objects = pathlib.Path(hosts[1].model_store, ".objects")
    while sum(path.stat().st_size for path in objects.glob("*.part")) < 2**22:
        time.sleep(0.05)
    left = programs(tmp_path)
    killed.kill()
    killed.join()
    assert len(left) == 2
    folders, told = bring(model, hosts)
    assert all(same(model, folders[host.name]) for host in hosts)
    copied = re.match(r"model tiny: ([\d.]+) MiB copied to 2", told[-1])
    assert copied
    assert float(copied[1]) <= 40


def test_a_host_whose_program_was_killed_is_named_in_seconds(
    tmp_path: pathlib.Path, model: Model
) -> None:
    hosts = stations(tmp_path, 2)
    objects = pathlib.Path(hosts[1].model_store, ".objects")

    def kill() -> None:
        while sum(path.stat().st_size for path in objects.glob("*.part")) < 2**22:
            time.sleep(0.05)
        os.kill(json.loads((objects / "transfer.json").read_text())["pid"], signal.SIGKILL)

    killer, begun_s = threading.Thread(target=kill), time.monotonic()
    killer.start()
    with pytest.raises(Refused, match="h1: the program that takes the model is gone: no word"):
        transfer.bring(model, hosts, report=print, here=SlowShell(), clock=SystemClock())
    killer.join()
    assert time.monotonic() - begun_s < 30
    assert programs(tmp_path) == []


def test_content_that_was_cut_short_on_a_host_is_copied_again(
    tmp_path: pathlib.Path, model: Model
) -> None:
    hosts = stations(tmp_path, 2)
    folders, _ = bring(model, hosts)
    weights = next(f for f in model.manifest.files if f.size_bytes == WEIGHTS_BYTES)
    for host in hosts:
        os.truncate(pathlib.Path(folders[host.name], weights.name), WEIGHTS_BYTES // 2)
    folders, told = bring(model, hosts)
    assert told[-1].startswith("model tiny: 48.0 MiB copied to 2 host(s)")
    assert all(same(model, folders[host.name]) for host in hosts)


def test_another_services_transfer_is_waited_for(tmp_path: pathlib.Path, model: Model) -> None:
    (host,) = stations(tmp_path, 1)
    objects = pathlib.Path(host.model_store, ".objects")
    objects.mkdir(parents=True)
    words = ["sh", "-c", "sleep 1; exit 0", "pass", f"{objects}/transfer.spec"]
    with subprocess.Popen(words) as other:
        state = {"pid": other.pid, "owner": "/elsewhere/state/other"}
        (objects / "transfer.json").write_text(json.dumps(state))
        folders, _ = bring(model, (host,))
    assert other.returncode == 0
    assert same(model, folders[host.name])


def test_damaged_content_is_refused_and_sent_anew(tmp_path: pathlib.Path, model: Model) -> None:
    hosts = stations(tmp_path, 2)
    weights = next(f for f in model.manifest.files if f.size_bytes == WEIGHTS_BYTES)
    objects = pathlib.Path(hosts[1].model_store, ".objects")
    objects.mkdir(parents=True)
    (objects / f"{weights.sha256}.part").write_bytes(bytes(WEIGHTS_BYTES // 2))
    with pytest.raises(Refused, match=r"h1: model\.safetensors: came with sha256"):
        bring(model, hosts)
    folders, _ = bring(model, hosts)
    assert same(model, folders["h1"])


def test_a_full_disk_is_named_before_anything_is_sent(tmp_path: pathlib.Path, model: Model) -> None:
    huge = model.manifest.files[0].model_copy(update={"size_bytes": 2**60})
    big = model.manifest.model_copy(update={"files": (huge,)})
    with pytest.raises(Refused, match=r"h0: .*its disk has .* free, needed 1048576\.0 TiB"):
        bring(Model(manifest=big, folder=model.folder), stations(tmp_path, 1))


def test_how_far_the_first_host_is_is_told_while_the_model_comes(
    tmp_path: pathlib.Path, model: Model
) -> None:
    (host,) = stations(tmp_path, 1)
    _, told = bring(model, (replace(host, staging_bytes_per_s=WEIGHTS_BYTES / 8),))
    shares = [int(found[1]) for line in told if (found := re.search(r"h0 (\d+)%", line))]
    assert shares
    assert 0 < shares[0] < 100


def test_what_came_in_part_needs_no_room_again(tmp_path: pathlib.Path, model: Model) -> None:
    (host,) = stations(tmp_path, 1)
    there = hop.hop(host)
    assert hop.room(model.manifest, there)[1] == 0
    weights = max(model.manifest.stored, key=lambda file: file.size_bytes)
    pathlib.Path(there.objects, f"{weights.sha256}.part").write_bytes(bytes(1000))
    assert hop.room(model.manifest, there)[1] == 1000
