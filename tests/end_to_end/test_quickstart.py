"""The README's two lines: the quickstart tells the whole story, then leaves nothing behind."""

import os
import pathlib
import re
import subprocess

import httpx
import pytest

from .story import ROOT, free_port, processes_naming, without_ids

pytestmark = pytest.mark.end_to_end


@pytest.mark.timeout(1500)
def test_the_quickstart_tells_the_whole_story_and_leaves_nothing_behind(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clone = tmp_path / "llmdeploy"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    port = free_port()
    environment = {**os.environ, "QUICKSTART_PORT": str(port)}
    script = str(clone / "examples" / "quickstart.sh")
    try:
        done = subprocess.run([script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
        counted = re.search(r"good releases: (\d+) of (\d+) requests", done.stdout)
        assert counted, done.stdout[-3000:]
        assert counted[1] == "0"
        assert int(counted[2]) > 100
        _answers(clone, port)
        ran = {_shape(line) for line in done.stdout.splitlines() if line.startswith("$ llmdeploy")}
        told = re.findall(r"^\$ llmdeploy .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
        assert len(told) >= 6
        missing = [line for line in told if _shape(line) not in ran]
        assert not missing, f"README shows commands that the quickstart does not run: {missing}"
        with capsys.disabled():
            took = re.search(r"The service is running\. Took (\d+) s", done.stdout)
            print(f"\nquickstart: {took[1] if took else '?'} s; {counted[0]}")
    finally:
        ended = subprocess.run([script, "stop"], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert not (clone / ".quickstart").exists()
    assert not processes_naming(str(clone))


def _answers(clone: pathlib.Path, port: int) -> None:
    key = (clone / ".quickstart" / "key").read_text().strip()
    body = {
        "model": "smollm2-135m-instruct",
        "temperature": 0,
        "messages": [{"role": "user", "content": "What is 2+2?"}],
    }
    answer = httpx.post(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json=body, headers={"authorization": f"Bearer {key}"}, timeout=60, trust_env=False,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    assert "4" in answer.json()["choices"][0]["message"]["content"]


def _shape(command: str) -> str:
    """The command with folders and ids taken out."""
    return without_ids(re.sub(r"--release ID\b", "--release 000000000000", command)).strip()
