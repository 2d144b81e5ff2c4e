"""A sealed model over two booted hosts: opened in the memory of each, gone with its release."""

import pathlib
import shutil
import socket

import pytest

from .bed import Bed
from .cluster_story import MODEL, ClusterStory, await_gone
from .needs import need_host_package, need_nspawn

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
FAKE = pathlib.Path(__file__).with_name("fake_vllm")


def test_each_host_opens_the_model_with_the_key_and_keeps_nothing_plain(
    tmp_path: pathlib.Path, padded_store: pathlib.Path
) -> None:
    need_nspawn()
    need_host_package("cryptography")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    shutil.copytree(FAKE, tmp_path / "vllm")
    shared = (str(tmp_path / "vllm"),)
    with Bed(tmp_path / "b", size=2, name="ldk2", prefix="10.89", disk="2g", shared=shared) as bed:
        store = tmp_path / "models"
        story = ClusterStory(
            bed, python=str(tmp_path / "vllm" / "python"), version="0.32.0", store=store, port=port
        )
        key = tmp_path / "model.key"
        key.write_text("5a" * 32 + "\n")
        key.chmod(0o600)
        words = ("--folder", str(padded_store / MODEL), "--store", str(store), "--yes")
        story.run("models", "add", MODEL, *words, "--key", f"file:{key}")
        plan = story.plan()
        told = story.launch(plan, code=3).stderr
        assert "its files are sealed" in told, told
        try:
            story.run(
                "launch", str(plan), "--inventory", "cluster.yaml", "--yes",
                "--key", f"file:{key}",
            )  # fmt: skip
            assert story.ask(plan.name).startswith("one")
            plain = (padded_store / MODEL / "model.safetensors").stat().st_size
            for machine in bed.machines:
                opened = f"/dev/shm/llmdeploy-open-{plan.name}"
                sizes = machine.run("find", opened, "-name", "model.safetensors", "-printf", "%s")
                assert int(sizes) == plain
                stored = machine.run("find", "/root/.local/share", "-name", "*.safetensors*")
                assert stored
                assert all(name.endswith(".sealed") for name in stored.split())
                held = machine.run(
                    "sh", "-c", "grep -rlE '(5a){32}' /root /etc /run /proc/[0-9]*/environ "
                    "/proc/[0-9]*/cmdline 2>/dev/null || true",
                )  # fmt: skip
                assert held == ""
        finally:
            story.run("stop", "chat", "--yes", "--purge", code=None)
        assert await_gone(story) == {machine.name: [] for machine in bed.machines}
