"""Faults that can be planted in a bed, one at a time, and what preflight must say of each."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .bed import Bed
from .build import Built
from .machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """Where a fault is planted."""

    bed: Bed
    built: Built

    number: int = 3
    """Of the host that gets the fault."""

    @property
    def victim(self) -> Machine:
        return self.bed.machines[self.number - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`finds` are ids of checks one of which must name the victim; `may` also are, and may fail."""

    name: str
    finds: frozenset[str]
    plant: Callable[[Lab], object]
    heal: Callable[[Lab], object] = field(default=lambda lab: None)
    may: frozenset[str] = frozenset()
    number: int = 3


def _of(*ids: str) -> frozenset[str]:
    return frozenset(ids)


def _card(what: str, finds: str, section: str = "gpu.3", /, **values: object) -> Fault:
    """One that the driver reports; healing takes the card file as it was."""

    def plant(lab: Lab) -> None:
        lab.victim.change_cards(section, **values)

    return Fault(
        name=what,
        finds=_of(*finds.split()),
        plant=plant,
        heal=lambda lab: lab.victim.reset_cards(),
    )


def _inside(
    name: str, finds: str, plant: str, heal: str, *, may: str = "", number: int = 3
) -> Fault:
    """One that a command on the victim makes."""
    return Fault(
        name=name,
        number=number,
        finds=_of(*finds.split()),
        may=_of(*may.split()),
        plant=lambda lab: lab.victim.run("sh", "-c", plant),
        heal=lambda lab: lab.victim.run("sh", "-c", heal),
    )


def _server(port: int) -> str:
    program = f"/usr/bin/python3 -m http.server {port}"
    wait = f"until ss -Hltn 'sport = :{port}' | grep -q .; do sleep 0.1; done"
    return f"systemd-run -q --unit=web-{port} {program} && {wait}"


REACH = _of("net.ssh.reach")
FAULTS = (
    Fault(
        name="link cut",
        finds=REACH,
        plant=lambda lab: lab.bed.network.cut(lab.victim.plug),
        heal=lambda lab: lab.bed.network.heal(lab.victim.plug),
    ),
    Fault(
        name="cable out",
        finds=REACH,
        plant=lambda lab: lab.bed.network.unplug(lab.victim.plug),
        heal=lambda lab: lab.bed.network.plug_in(lab.victim.plug),
    ),
    Fault(
        name="port 22 blocked",
        finds=REACH,
        plant=lambda lab: lab.bed.network.block(lab.victim.plug, port=22),
        heal=lambda lab: lab.bed.network.mend(),
    ),
    Fault(
        name="host frozen",
        finds=REACH,
        plant=lambda lab: lab.victim.freeze(),
        heal=lambda lab: lab.victim.thaw(),
    ),
    _inside("sshd stopped", "net.ssh.reach", "systemctl stop ssh", "systemctl start ssh"),
    _inside(
        "key not let in",
        "net.ssh.reach",
        "mv /root/.ssh/authorized_keys /root/.ssh/away",
        "mv /root/.ssh/away /root/.ssh/authorized_keys",
    ),
    _inside(
        "no login shell",
        "net.ssh.reach",
        "usermod -s /usr/sbin/nologin root",
        "usermod -s /bin/bash root",
    ),
    _inside(
        "host key changed",
        "net.ssh.reach",
        "cd /etc/ssh; mkdir old; mv ssh_host_* old; "
        "ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key; systemctl restart ssh",
        "cd /etc/ssh; rm ssh_host_*; mv old/* .; rmdir old; systemctl restart ssh",
    ),
    Fault(
        name="clock two hours behind",
        finds=_of("time.offset", "con.clock"),
        may=_of("time.offset", "con.clock"),
        plant=lambda lab: lab.victim.skew_clock(lab.built, offset_s=-7200),
        heal=lambda lab: lab.victim.skew_clock(lab.built, offset_s=0),
    ),
    _card("card lost", "gpu.smi.responsive gpu.visible.count con.gpu", state="lost"),
    _card("card unknown to the driver", "gpu.smi.responsive con.gpu", state="unknown"),
    _card("a card fewer", "con.gpu gpu.visible.count", "system", count=7),
    _card("no driver", "gpu.smi.responsive con.gpu", "system", state="no_driver"),
    _card("driver and library differ", "drv.nvml.match gpu.smi.responsive", "system",
          state="mismatch"),
    _card("driver hangs", "gpu.smi.responsive", "system", state="hang:60"),
    _card("another driver version", "con.driver", "system", driver_version="535.183.01"),
    _card("memory errors", "gpu.ecc.uncorrected", ecc__mode__current="Enabled",
          ecc__errors__uncorrected__volatile__total=3),
    _card("memory taken by a stranger", "gpu.memory.free gpu.foreign.processes",
          memory__used=21000, proc="4242:/opt/miner:21000"),
    _card("hot card", "gpu.temp.margin", temperature__gpu=93),
    _card("hardware slowdown", "gpu.throttle", clocks_event_reasons__hw_slowdown="Active"),
    _card("thermal slowdown", "gpu.throttle",
          clocks_event_reasons__hw_thermal_slowdown="Active"),
    _card("half of the lanes", "gpu.pcie.link", pcie__link__width__current=8,
          utilization__gpu=0),
    _card("another power limit", "gpu.power.limit con.gpu.modes", power__limit=250),
    _card("persistence off", "gpu.persistence", "gpu", persistence_mode=0),
    _card("exclusive card", "gpu.compute.mode", compute_mode="Exclusive_Process"),
    _card("prohibited card", "gpu.compute.mode", compute_mode="Prohibited"),
    _card("another card among equals", "gpu.model.homogeneous con.gpu",
          name="NVIDIA GeForce RTX 3090", compute_cap="8.6"),
    _card("less memory on a card", "gpu.model.homogeneous con.gpu", memory__total=16384),
    _card("another firmware", "drv.vbios.consistent drv.vbios.hosts",
          vbios_version="95.02.18.80.01"),
    _card("split card", "gpu.mig.mode", mig__mode__current="Enabled", mig__mode__pending="Enabled"),
    _card("rows to be remapped", "gpu.remap.pending", remapped_rows__pending=1,
          remapped_rows__failure=0, remapped_rows__uncorrectable=1),
    _card("no spare rows", "gpu.remap.failure", remapped_rows__failure=1,
          remapped_rows__pending=0, remapped_rows__uncorrectable=9),
    _inside("gateway's port taken", "net.ports.gateway", _server(8080), "systemctl stop web-8080",
            number=1),
    _inside("disk full", "sto.space sto.space.log", "fallocate -l 1900m /var/fill", "rm /var/fill",
            may="sto.space sto.space.log sto.space.store sto.cache.dirs"),
    _inside("no Python", "rt.python con.python", "mv /usr/bin/python3 /usr/bin/python3-away",
            "mv /usr/bin/python3-away /usr/bin/python3",
            may="rt.python rt.lock rt.llmdeploy rt.engine.import"),
    _inside("name leads to loopback", "net.hostname.resolves",
            "cp /etc/hosts /etc/hosts.was; sed -i \"s/^127.0.0.1.*/& $(hostname)/; "
            "/^10[.].* $(hostname)$/d\" /etc/hosts", "cp /etc/hosts.was /etc/hosts"),
    _inside("another MTU", "net.mtu", "ip link set eth0 mtu 1280", "ip link set eth0 mtu 1500"),
    _inside("firewall", "net.firewall",
            "nft add table inet wall; nft add chain inet wall in "
            "'{ type filter hook input priority 0; policy accept; }'; "
            "nft add rule inet wall in tcp dport 21000-21999 drop", "nft delete table inet wall"),
    _inside("another time zone", "time.zone",
            "ln -sf /usr/share/zoneinfo/Asia/Tokyo /etc/localtime",
            "ln -sf /usr/share/zoneinfo/UTC /etc/localtime"),
    _inside("few open files", "os.nofile con.limits",
            "cp /etc/security/limits.conf /etc/limits.was; "
            "sed -i 's/nofile.*/nofile 256/' /etc/security/limits.conf",
            "cp /etc/limits.was /etc/security/limits.conf"),
    _inside("little locked memory", "os.memlock con.limits",
            "cp /etc/security/limits.conf /etc/limits.was; "
            "sed -i 's/memlock.*/memlock 64/' /etc/security/limits.conf",
            "cp /etc/limits.was /etc/security/limits.conf"),
    _inside("little shared memory", "os.shm", "mount -o remount,size=64m /dev/shm",
            "mount -o remount,size=16g /dev/shm"),
    _inside("proxy set", "net.proxy.env rt.env.bad con.env",
            "cp /etc/environment /etc/environment.was 2>/dev/null; "
            "echo 'http_proxy=http://10.0.0.1:3128' >>/etc/environment",
            "cp /etc/environment.was /etc/environment 2>/dev/null || : >/etc/environment"),
    _inside("preloaded library", "rt.env.bad rt.env.libraries con.env",
            "cp /etc/environment /etc/environment.was 2>/dev/null; "
            "echo 'LD_LIBRARY_PATH=/opt/old' >>/etc/environment",
            "cp /etc/environment.was /etc/environment 2>/dev/null || : >/etc/environment"),
    _inside("state folder open to all", "sec.state.perm",
            "mkdir -p /root/.local/state/llmdeploy; chmod 777 /root/.local/state/llmdeploy",
            "rm -r /root/.local"),
    _inside("state folder read-only", "sto.mount.health",
            "mkdir -p /root/.local/state/llmdeploy; mount -t tmpfs -o ro,size=2g none "
            "/root/.local/state/llmdeploy",
            "umount /root/.local/state/llmdeploy; rm -r /root/.local",
            may="sto.space sto.filesystem sec.state.perm"),
)  # fmt: skip
