"""The fake driver: its tool speaks as nvidia-smi does, its library as NVML does."""

import ctypes
import os
import pathlib
import subprocess

import pytest

from .build import Built, ini


def _smi(built: Built, cards: str, folder: pathlib.Path, *argv: str) -> tuple[int, str]:
    (folder / "cards.ini").write_text(cards)
    done = subprocess.run(
        [str(built.tool), *argv],
        capture_output=True,
        text=True,
        check=False,
        env={"FAKE_GPU_INI": str(folder / "cards.ini")},
    )
    return done.returncode, done.stdout


def test_the_tool_answers_queries(built: Built, tmp_path: pathlib.Path) -> None:
    query = "--query-gpu=index,name,memory.total,power.limit,ecc.mode.current"
    code, said = _smi(built, ini("rtx4090x8"), tmp_path, query, "--format=csv,noheader,nounits")
    assert code == 0
    rows = said.splitlines()
    assert len(rows) == 8
    assert rows[3] == "3, NVIDIA GeForce RTX 4090, 24564, 450.00, [N/A]"
    with_units = _smi(built, ini("h100x8"), tmp_path, "--query-gpu=power.limit", "--format=csv")[1]
    assert with_units.splitlines()[:2] == ["power.limit [W]", "700.00 W"]


def test_the_tool_shows_links_and_paths(built: Built, tmp_path: pathlib.Path) -> None:
    paths = _smi(built, ini("rtx4090x8"), tmp_path, "topo", "-m")[1].splitlines()
    assert paths[1].split("\t")[:7] == ["GPU0", " X ", "PIX", "NODE", "NODE", "SYS", "SYS"]
    cut = f"{ini('h100x8')}[gpu.7]\nnvlink.4.down=1\n"
    links = _smi(built, cut, tmp_path, "nvlink", "-s")[1]
    assert links.count("GB/s") == 8 * 18 - 1
    assert links.count("\t Link 4: <inactive>\n") == 1


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("[system]\nstate=no_driver\n", 9, "couldn't communicate with the NVIDIA driver"),
        ("[system]\nstate=mismatch\n", 18, "Driver/library version mismatch"),
        ("[system]\ncount=0\n", 6, "No devices were found"),
        ("[gpu.5]\nstate=lost\n", 15, "GPU5: 00000000:A1:00.0: GPU is lost"),
        ("[gpu.5]\nstate=unknown\n", 255, "GPU5: 00000000:A1:00.0: Unknown Error"),
    ],
)
def test_the_tool_fails_as_the_real_one(
    built: Built, tmp_path: pathlib.Path, change: str, code: int, said: str
) -> None:
    found = _smi(built, f"{ini('rtx4090x8')}\n{change}", tmp_path, "--query-gpu=index")
    assert found[0] == code
    assert said in found[1]


def test_unknown_fields_and_options_are_refused(built: Built, tmp_path: pathlib.Path) -> None:
    cards = ini("rtx4090x8")
    assert _smi(built, cards, tmp_path, "--query-gpu=index,warp", "--format=csv,noheader") == (
        2,
        '0, Field "warp" is not a valid field to query.\n\n',
    )
    assert "is not recognized" in _smi(built, cards, tmp_path, "--frobnicate")[1]


def test_the_library_counts_the_cards(
    built: Built, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cards.ini").write_text(ini("h100x8"))
    program = (
        "import ctypes, sys; nvml = ctypes.CDLL(sys.argv[1]); count = ctypes.c_uint();"
        "name = ctypes.create_string_buffer(96); handle = ctypes.c_void_p();"
        "assert nvml.nvmlInit_v2() == 0; nvml.nvmlDeviceGetCount_v2(ctypes.byref(count));"
        "nvml.nvmlDeviceGetHandleByIndex_v2(7, ctypes.byref(handle));"
        "nvml.nvmlDeviceGetName(handle, name, 96); print(count.value, name.value.decode())"
    )
    done = subprocess.run(
        ["python3", "-c", program, str(built.library)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "FAKE_GPU_INI": str(tmp_path / "cards.ini")},
    )
    assert done.stdout == "8 NVIDIA H100 80GB HBM3\n"
    assert ctypes.sizeof(ctypes.c_void_p) == 8
