"""One whole host: systemd as its init, sshd, own address, own disk, own process tree."""

import contextlib
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Sequence

from .build import Built
from .cgroup import Cgroup
from .needs import NSPAWN
from .network import Network, Plug
from .sshd import make_key, run

_MASKED = (
    *("systemd-firstboot", "systemd-resolved", "systemd-networkd", "systemd-timesyncd"),
    *("systemd-udevd", "systemd-binfmt", "systemd-journal-flush", "console-getty", "getty@"),
    *("e2scrub_reap", "apt-daily", "apt-daily-upgrade", "dpkg-db-backup"),
)
_KEPT = {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32"} | {
    *("proc", "run", "sbin", "sys", "usr", "var")
}
"""Folders of this machine that its hosts see; all others are hidden from them."""
_SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
UsePAM yes
UseDNS no
PrintMotd no
MaxStartups 1000
MaxSessions 100
PermitRootLogin prohibit-password
PasswordAuthentication no
Subsystem sftp internal-sftp
"""
_LIMITS = "".join(
    f"{who} - {what}\n"
    for who in ("*", "root")
    for what in ("nofile 1048576", "memlock unlimited", "nproc unlimited")
)
"""As a host that serves models has them."""
_OWN_INTERFACES = """\
[Unit]
Description=/sys shows this host's interfaces, not those of the machine it runs on
Before=ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'mkdir -p /run/sys; mount -t sysfs none /run/sys; \
  for part in class/net devices/virtual/net; do mount --bind /run/sys/$part /sys/$part; done'
"""
_REBOOTED = 133
"""nspawn's exit code for a reboot under --keep-unit: it must be started again."""


class Machine:
    """Its disk is this machine's own root under a writable layer in memory."""

    def __init__(
        self,
        folder: pathlib.Path,
        plug: Plug,
        network: Network,
        *,
        disk: str,
        shared: Sequence[str] = (),
    ) -> None:
        self.folder, self.plug, self.network = folder, plug, network
        self.name = f"node{plug.number}"
        self.address = plug.address
        self._machine = plug.namespace
        self._memory = folder / "memory"
        self.layer = self._memory / "layer"
        self.root = self._memory / "root"
        self._disk = disk
        self._cards = ""
        self._shared = tuple(f"--bind-ro={path}" for path in shared)
        self.cgroup = Cgroup(self._machine)
        self._process: subprocess.Popen[bytes] | None = None

    def create(self, *, key: pathlib.Path, names: dict[str, str]) -> None:
        """The disk with all that the host needs to boot; `names` become its /etc/hosts."""
        self.power_off(silent=False)  # what a killed run left of a host of this name
        self._memory.mkdir(parents=True)
        size = f"size={self._disk},mode=755"
        run("mount", "-t", "tmpfs", "-o", size, self._machine, str(self._memory))
        for part in (self.layer, self._memory / "work", self.root):
            part.mkdir()
        self._hide()
        self._fill(key, names)
        layers = f"lowerdir=/,upperdir={self.layer},workdir={self._memory}/work"
        run("mount", "-t", "overlay", self._machine, "-o", layers, str(self.root))

    def power_on(self) -> None:
        self.cgroup.make()
        boot = (
            f"{NSPAWN} -q --boot --register=no --keep-unit --console=pipe -D {self.root} "
            f"--machine={self._machine} --hostname={self.name} "
            f"--network-namespace-path=/run/netns/{self.plug.namespace} --resolv-conf=off "
            "--timezone=off --link-journal=no --capability=all "
            f'--system-call-filter="@keyring bpf @mount" {shlex.join(self._shared)}'
        )
        again = f"while :; do {boot} </dev/null; [ $? = {_REBOOTED} ] || exit; done"
        with (self.folder / "console.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", self.cgroup.entering + again],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def power_off(self, *, silent: bool = True) -> None:
        """Pulls the plug, whatever state it is in. `silent` cuts the link first: as in a real power
        loss, no dying kernel tells its peers."""
        if silent:
            self.network.cut(self.plug)
        with contextlib.suppress(AssertionError, OSError):
            self.thaw()
        if self._process:
            self._process.kill()
        self.cgroup.kill()
        if self._process:
            self._process.wait(10)
            self._process = None
        self.cgroup.remove()

    def freeze(self) -> None:
        self.cgroup.freeze(frozen=True)

    def thaw(self) -> None:
        self.cgroup.freeze(frozen=False)

    def run(self, *argv: str) -> str:
        """What a command prints inside, past SSH and the network."""
        return run(*self.entering(*argv))

    def entering(self, *argv: str) -> tuple[str, ...]:
        """The command of this machine that runs another inside."""
        init = str(self._init())
        return ("nsenter", "-t", init, "-m", "-p", "-u", "-i", "-n", "-C", "--", *argv)

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """A file on its disk, whether it runs or not."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def give_cards(self, built: Built, cards: str) -> None:
        """A GPU driver's library and tool that report the cards of an INI text."""
        for source, target in (
            (built.library, "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"),
            (built.tool, "usr/bin/nvidia-smi"),
        ):
            shutil.copy(source, self.root / target)
        self._cards = cards
        self.reset_cards()

    def reset_cards(self) -> None:
        """The cards as they were given."""
        self.write("/etc/fake_gpu.ini", self._cards)

    def change_cards(self, section: str, **values: object) -> None:
        """Adds values to a section, such as `gpu.3`; a later value wins. `__` stands for a dot."""
        path = self.root / "etc/fake_gpu.ini"
        lines = [f"{key.replace('__', '.')}={value}\n" for key, value in values.items()]
        path.write_text(f"{path.read_text()}\n[{section}]\n{''.join(lines)}")

    def skew_clock(self, built: Built, *, offset_s: int) -> None:
        """Its programs see a clock that is off; what runs already keeps the right one."""
        if not (self.root / "usr/lib/skewed_clock.so").exists():  # never under programs that run it
            shutil.copy(built.clock, self.root / "usr/lib/skewed_clock.so")
        self.write("/etc/clock_offset", f"{offset_s}\n")
        self.write("/etc/ld.so.preload", "/usr/lib/skewed_clock.so\n" if offset_s else "")

    def new_host_key(self) -> None:
        """As after a new installation."""
        for old in (self.root / "etc/ssh").glob("ssh_host_*"):
            old.unlink()
        make_key(self.root / "etc/ssh/ssh_host_ed25519_key")
        self.run("systemctl", "restart", "ssh")

    def wait(self, *, limit_s: float) -> None:
        """Returns once its sshd speaks; AssertionError with its console otherwise."""
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            if speaks_ssh(self.address):
                return
            time.sleep(0.05)
        console = (self.folder / "console.log").read_text(errors="replace")
        raise AssertionError(f"{self.name} does not boot: {console[-2000:]}")

    @property
    def known_hosts_line(self) -> str:
        public = (self.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
        return f"{self.address} {' '.join(public.split()[:2])}\n"

    def destroy(self) -> None:
        self.power_off(silent=False)
        for mounted in (self.root, self._memory):
            subprocess.run(["umount", "-l", str(mounted)], capture_output=True, check=False)

    def _hide(self) -> None:
        hidden = [
            entry.name
            for entry in pathlib.Path("/").iterdir()
            if entry.is_dir() and not entry.is_symlink() and entry.name not in _KEPT
        ]
        for path in (*hidden, "tmp", "var/tmp", "var/log", "etc/systemd/system", "etc/ssh"):
            (self.layer / path).mkdir(parents=True, exist_ok=True)
            os.setxattr(self.layer / path, "trusted.overlay.opaque", b"y")

    def _fill(self, key: pathlib.Path, names: dict[str, str]) -> None:
        layer = self.layer
        units = layer / "etc/systemd/system"
        (units / "multi-user.target.wants").mkdir(parents=True)
        for folder, mode in (("root", 0o700), ("root/.ssh", 0o700), ("tmp", 0o1777)):
            (layer / folder).mkdir(parents=True, exist_ok=True)
            (layer / folder).chmod(mode)
        (layer / "run").mkdir(exist_ok=True)
        public = key.with_name(f"{key.name}.pub")
        shutil.copy(public, layer / "root/.ssh/authorized_keys")
        make_key(layer / "etc/ssh/ssh_host_ed25519_key")
        (layer / "etc/ssh/sshd_config").write_text(_SSHD)
        (layer / "etc/fstab").write_text("tmpfs /dev/shm tmpfs size=16g 0 0\n")
        (layer / "etc/security").mkdir(exist_ok=True)
        (layer / "etc/security/limits.conf").write_text(_LIMITS)
        (layer / "etc/hostname").write_text(f"{self.name}\n")
        (layer / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
        hosts = [f"{address} {name}\n" for name, address in names.items()]
        (layer / "etc/hosts").write_text("".join(["127.0.0.1 localhost\n", *hosts]))
        for name in _MASKED:
            kinds = (".service", ".timer") if name.startswith(("apt", "dpkg")) else (".service",)
            for kind in kinds:
                (units / f"{name}{kind}").symlink_to("/dev/null")
        (units / "own-interfaces.service").write_text(_OWN_INTERFACES)
        there, wanted = "/lib/systemd/system", units / "multi-user.target.wants"
        (wanted / "own-interfaces.service").symlink_to("/etc/systemd/system/own-interfaces.service")
        (wanted / "ssh.service").symlink_to(f"{there}/ssh.service")
        (units / "default.target").symlink_to(f"{there}/multi-user.target")

    def _init(self) -> int:
        """This machine's number for the host's process 1."""
        for pid in self.cgroup.processes():
            with contextlib.suppress(OSError, StopIteration):
                lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                numbers = next(line for line in lines if line.startswith("NSpid")).split()
                if len(numbers) == 3 and numbers[2] == "1":
                    return pid
        raise AssertionError(f"{self.name} does not run")


def speaks_ssh(address: str) -> bool:
    """Whether an sshd sends its first line now."""
    try:
        with socket.create_connection((address, 22), 1) as plug:
            plug.settimeout(2)
            return plug.recv(4) == b"SSH-"
    except OSError:
        return False
