"""What a bed needs of this machine; a test that lacks it skips with the reason."""

import functools
import os
import pathlib
import shutil
import subprocess

import pytest

SSHD = "/usr/sbin/sshd"
NSPAWN = "/usr/bin/systemd-nspawn"
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def need_sshd() -> None:
    """Skips where no real sshd can be started."""
    _need(os.geteuid() == 0, "starting sshd with its own host key needs root")
    _need(os.path.exists(SSHD), f"{SSHD} is not there: apt-get install openssh-server")
    _need(shutil.which("ssh-keygen"), "ssh-keygen is not there: apt-get install openssh-client")


def need_namespaces() -> None:
    """Skips where no network namespaces with links between them can be made."""
    _need(os.geteuid() == 0, "making network namespaces needs root")
    _need(shutil.which("ip"), "ip is not there: apt-get install iproute2")
    _need(_namespaces_work(), "this kernel or container lets root make no network namespace")


def need_nspawn() -> None:
    """Skips where no hosts can be booted."""
    need_sshd()
    need_namespaces()
    _need(os.path.exists(NSPAWN), f"{NSPAWN} is not there: apt-get install systemd-container")
    _need(shutil.which("nft"), "nft is not there: apt-get install nftables")
    _need(os.path.exists("/lib/systemd/systemd"), "systemd is not there: apt-get install systemd")
    _need(_cgroups_work(), "root may make no cgroups here: the hosts' init needs its own")


def need_compiler() -> None:
    """Skips where the fake GPU library cannot be built."""
    _need(shutil.which("gcc"), "gcc is not there: apt-get install gcc libc6-dev")


def need_host_package(name: str) -> None:
    """Skips where the Python of booted hosts, this machine's own, lacks a package."""
    found = subprocess.run(
        ["/usr/bin/python3", "-c", f"import {name}"], capture_output=True, check=False
    )
    there = f"/usr/bin/python3 has no {name}: apt-get install python3-{name}"
    _need(found.returncode == 0, there)


def _need(there: object, reason: str) -> None:
    if not there:
        pytest.skip(reason)


@functools.cache
def _namespaces_work() -> bool:
    name = f"llmdeploy-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


@functools.cache
def _cgroups_work() -> bool:
    for root in (CGROUPS / "unified", CGROUPS / "systemd", CGROUPS):
        if not root.is_dir() or not (root / "cgroup.procs").exists():
            continue
        attempt = root / f"llmdeploy-try-{os.getpid()}"
        try:
            attempt.mkdir()
            attempt.rmdir()
        except OSError:
            return False
        return True
    return False
