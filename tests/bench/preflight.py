"""How long a quick preflight of many hosts takes, beside a bare `true` over SSH on the same hosts.

    python -m tests.bench.preflight --hosts 256            plain sshds, each behind its own address
    python -m tests.bench.preflight --hosts 64 --booted    whole hosts with systemd

Needs root. Both are run in turns on the same hosts, `true` with paramiko alone, a new connection a
host and 32 at once as preflight does; ansible's ping is added where ansible is installed (or
`--ansible` names it). Each round gives a ratio; its median counts, with the load beside it, since
all hosts and the client share this machine's cores.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import paramiko

from llmdeploy.edge.ssh import SshShell
from llmdeploy.edge.ssh_config import Config, Target
from llmdeploy.edge.ssh_pool import Connections
from tests.lab.bed import Bed, PlainBed

AT_ONCE = 32
PYTHON = "/usr/bin/python3"
"""Not what a login's PATH finds: a version manager's shim takes longer than the whole probe."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=256)
    parser.add_argument("--booted", action="store_true", help="whole hosts instead of plain sshds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--own", action="store_true", help="also `true` by our own connections")
    parser.add_argument("--ansible", default=shutil.which("ansible"), help="path of its program")
    wanted = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="llmdeploy-bench-"))
    kind = Bed if wanted.booted else PlainBed
    try:
        begun_s = time.monotonic()
        with kind(folder / "bed", size=wanted.hosts) as bed:
            print(f"{wanted.hosts} hosts up in {time.monotonic() - begun_s:.1f} s")
            plugs = bed.network.plugs
            addresses = [plug.address for plug in plugs]
            _measure(folder / "bed", addresses, rounds=wanted.rounds, own=wanted.own)
            if wanted.ansible:
                taken_s = _timed(lambda: _ansible(wanted.ansible, folder / "bed", addresses))
                print(f"ansible ping: {taken_s:.2f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(home: pathlib.Path, addresses: list[str], *, rounds: int, own: bool) -> None:
    service = _documents(home, len(addresses))
    times = []
    for number in range(rounds):
        bare_s = _timed(lambda: _bare(home, addresses))
        ours_s = _timed(lambda: _ours(home, len(addresses))) if own else None
        whole_s = _timed(lambda: _preflight(home, service, len(addresses)))
        times.append((bare_s, whole_s))
        _show(f"round {number + 1}", bare_s, ours_s, whole_s)
    _show("median", median(bare for bare, _ in times), None, median(whole for _, whole in times))
    ratio = median(whole_s / bare_s for bare_s, whole_s in times)
    print(f"median of the ratios: {ratio:.2f}", flush=True)


def _documents(home: pathlib.Path, hosts: int) -> str:
    (home / "cluster.yaml").write_text(
        f"hosts: [{{name: node, count: {hosts}, address: 'node{{number}}', python: {PYTHON}}}]\n"
        if hosts > 1
        else f"hosts: [{{name: node, address: node1, python: {PYTHON}}}]\n"
    )
    (home / "service.yaml").write_text("cluster: cluster.yaml\nmodel: {id: none}\n")
    return str(home / "service.yaml")


def _bare(home: pathlib.Path, addresses: list[str]) -> None:
    key = paramiko.Ed25519Key.from_private_key_file(str(home / ".ssh" / "id_ed25519"))

    def true(address: str) -> int:
        client = paramiko.SSHClient()
        client.load_host_keys(str(home / ".ssh" / "known_hosts"))
        client.connect(address, username="root", pkey=key, look_for_keys=False, allow_agent=False)
        _, output, _ = client.exec_command("true")
        code = output.channel.recv_exit_status()
        client.close()
        return code

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert set(pool.map(true, addresses)) == {0}, "a host did not run `true`"


def _ours(home: pathlib.Path, hosts: int) -> None:
    """`true` by the product's own connections: what they cost beside paramiko alone."""
    config = Config(str(home / ".ssh" / "config"), system_path="/nonexistent")
    with Connections(config=config) as connections, ThreadPoolExecutor(AT_ONCE) as pool:

        def true(name: str) -> int:
            shell = SshShell(Target(name=name, address=name), connections)
            return shell.run(["true"], timeout_s=60).exit_code

        names = [f"node{number}" for number in range(1, hosts + 1)]
        assert set(pool.map(true, names)) == {0}, "a host did not run `true`"


def _show(label: str, bare_s: float, ours_s: float | None, whole_s: float) -> None:
    ours = f"our SSH's true {ours_s:6.2f} s, " if ours_s is not None else ""
    print(
        f"{label:8} bare paramiko true {bare_s:6.2f} s, {ours}preflight --quick {whole_s:6.2f} s; "
        f"ratio {whole_s / bare_s:.2f}, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def _preflight(home: pathlib.Path, service: str, hosts: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llmdeploy", "preflight", service, "--quick", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "HOME": str(home),
            "PYTHONPYCACHEPREFIX": str(home / "bytecode"),  # as an installed package has it
        },
    )
    assert done.returncode in (0, 3), done.stderr[-2000:]
    report = json.loads(done.stdout)
    found = len(report["facts"]["hosts"])
    assert found == hosts, f"{found} of {hosts} hosts answered: {done.stderr[-2000:]}"


def _ansible(program: str, home: pathlib.Path, addresses: list[str]) -> None:
    argv = [
        program,
        "all",
        "-u",
        "root",
        "--private-key",
        f"{home}/.ssh/id_ed25519",
        "-i",
        ",".join([*addresses, ""]),
        "-m",
        "ping",
        "-f",
        str(AT_ONCE),
    ]
    known = f"-o UserKnownHostsFile={home}/.ssh/known_hosts"
    env = {**os.environ, "HOME": str(home), "ANSIBLE_SSH_COMMON_ARGS": known}
    subprocess.run(argv, check=True, capture_output=True, env=env)


def _timed(act: Callable[[], None]) -> float:
    begun_s = time.monotonic()
    act()
    return time.monotonic() - begun_s


if __name__ == "__main__":
    main()
