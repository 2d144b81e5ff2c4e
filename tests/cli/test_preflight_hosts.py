"""`llmdeploy preflight` over SSH: real sshds, one of them frozen, one that hangs."""

import json
import pathlib
import time
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from llmdeploy.cli.app import app

from ..edge.ssh_bed import Client
from ..lab.needs import need_sshd
from ..lab.sshd import Sshd, make_key

CANARY = "canary-5150"
SERVICE = "cluster: cluster.yaml\nmodel: {id: tiny}\n"


def _run(folder: pathlib.Path, *argv: str) -> Result:
    path = str(folder / "service.yaml")
    return CliRunner().invoke(app, ["preflight", path, *argv], env={"LLMDEPLOY_STATE_ROOT": ""})


def _write(folder: pathlib.Path, cluster: str) -> None:
    (folder / "service.yaml").write_text(SERVICE)
    (folder / "cluster.yaml").write_text(cluster)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("hosts: [{name: a}, {name: b, address: x}, {name: c}]", "a, c with address local"),
        ("hosts: [{name: b, address: x}]\nstate_root: here", "found here, needed a path"),
        ("hosts: [{name: b, count: 4, address: x}]", "needed {number} in it, like gpu-{number}"),
        ("hosts: [{name: b, address: 'x:99999'}]", "found port '99999'"),
        ("hosts: [{name: b, address: x, key: /no/key}]", "b: key: found no file /no/key"),
    ],
)
def test_hosts_that_cannot_be_asked_exit_2(tmp_path: pathlib.Path, cluster: str, said: str) -> None:
    _write(tmp_path, cluster)
    done = _run(tmp_path)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert "hint: " in done.stderr


@pytest.fixture
def client(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    need_sshd()
    (tmp_path / ".ssh").mkdir()
    made = Client(tmp_path / ".ssh")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LLM_SECRET_TOKEN", CANARY)
    yield made
    made.close()


@pytest.mark.end_to_end
def test_a_hung_and_a_frozen_host_fail_and_the_others_complete(
    client: Client, tmp_path: pathlib.Path
) -> None:
    # the hang is in the login: whatever runs there sleeps first
    slow = 'ForceCommand sleep 300; eval "$SSH_ORIGINAL_COMMAND"\n'
    servers = [
        Sshd(folder=tmp_path / "s1", key=client.key),
        Sshd(folder=tmp_path / "s2", key=client.key, extra=slow),
        Sshd(folder=tmp_path / "s3", key=client.key),
        Sshd(folder=tmp_path / "s4", key=client.key),
    ]
    try:
        for number, server in enumerate(servers, start=1):
            server.__enter__()
            client.knows(f"gpu-{number}", server)
        servers[2].freeze()
        _write(tmp_path, "hosts: [{name: gpu, count: 4, address: 'gpu-{number}'}]\n")
        begun_s = time.monotonic()
        done = _run(tmp_path, "--quick", "--json", "--deadline", "40s")
        took_s = time.monotonic() - begun_s
    finally:
        for server in servers:
            server.stop()
    assert done.exit_code == 3, done.stderr
    report = json.loads(done.stdout)
    assert [facts["host"] for facts in report["facts"]["hosts"]] == ["gpu-1", "gpu-4"]
    hung, frozen = report["facts"]["unreached"]
    assert hung["host"] == "gpu-2"
    assert "did not begin in 40 s" in hung["found"]
    assert frozen["host"] == "gpu-3"
    assert "sent no SSH banner" in frozen["found"]
    failed = [f["subject"] for f in report["findings"] if f["check"] == "net.ssh.reach"]
    assert failed == ["gpu-2", "gpu-3"]
    assert "gpu-3: FAIL after" in done.stderr
    assert "gpu-1: answered after" in done.stderr
    assert took_s < 40 + 20
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.end_to_end
def test_one_host_that_does_not_answer_exits_4_or_2(client: Client, tmp_path: pathlib.Path) -> None:
    with Sshd(folder=tmp_path / "s1", key=client.key) as server:
        client.names("gpu", server)
        _write(tmp_path, "hosts: [{name: gpu, address: gpu}]\n")
        assert _run(tmp_path, "--quick").exit_code == 2
        client.known_hosts.write_text(server.known_hosts_line)
        server.stop()
        done = _run(tmp_path, "--quick")
    assert done.exit_code == 4
    assert "gpu: root@127.0.0.1" in done.stderr
    assert "nothing listens" in done.stderr


def test_no_planted_secret_reaches_an_output_a_log_a_bundle_or_a_report(
    client: Client, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A key's passphrase, a sudo password and tokens in both environments, and in what a tool and
    sudo print."""
    caplog.set_level(0)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, words in (
        ("mx-smi", f"cannot log in: password: {CANARY}"),
        ("sudo", f"sudo: SUDO_PASSWORD={CANARY}: a password is required"),
    ):
        (tools / name).write_text(f"#!/bin/sh\necho '{words}'\nexit 1\n")
        (tools / name).chmod(0o755)
    words = f"HF_TOKEN=hf_{CANARY} SUDO_PASSWORD={CANARY} VLLM_API_KEY={CANARY}"
    extra = f"SetEnv {words} PATH={tools}:/usr/bin:/bin:/usr/sbin\n"
    locked = make_key(tmp_path / "locked", passphrase=CANARY)
    with Sshd(folder=tmp_path / "s1", key=client.key, extra=extra) as open_host:
        client.knows("gpu-1", open_host)
        client.knows("gpu-2", open_host, settings=f"  IdentityFile {locked}\n")
        _write(tmp_path, "hosts: [{name: gpu, count: 2, address: 'gpu-{number}'}]\n")
        files = [tmp_path / name for name in ("facts.json", "report.html")]
        shown = _run(tmp_path, "--quick", "--out", str(files[0]), "--html", str(files[1]))
        as_json = _run(tmp_path, "--quick", "--json")
    report = json.loads(as_json.stdout)
    facts = report["facts"]["hosts"][0]
    assert facts["host"] == "gpu-1"
    assert "VLLM_API_KEY" in facts["environment_names"]
    assert any("cannot log in" in error for error in facts["accelerator_errors"])
    assert "needs its passphrase" in report["facts"]["unreached"][0]["found"]
    texts = [shown.stdout, shown.stderr, as_json.stdout, as_json.stderr, caplog.text]
    for text in (*texts, *(path.read_text() for path in files)):
        assert CANARY not in text
