"""Network namespaces behind one switch, each with its own address, reachable from this machine."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from .sshd import run

BURST_S = 0.01
LEAST_BURST_BYTES = 65536
"""Of a slower link: what it may send at once."""
_RULES = """\
table bridge lab {
  set cut { typeof iifname . oifname; }
  chain pairs { type filter hook forward priority 0; policy accept; iifname . oifname @cut drop; }
  chain drops { type filter hook forward priority 1; policy accept; }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plug:
    """One namespace's place at the switch."""

    namespace: str
    port: str
    """The switch's end of the link."""
    address: str

    @property
    def number(self) -> int:
        return int(self.port[1:])


@dataclass
class _Relay:
    """The user-space shaper of one link: the kernel may have no sch_netem."""

    settings: pathlib.Path
    process: subprocess.Popen[bytes]
    inside: tuple[str, str] = field(default=("", ""))


class Network:
    """`PREFIX.0.0/16`: this machine is .0.1, the namespaces .1.1, .1.2, …; a context.

    this machine ── PREFIX0 ── [namespace NAME-sw: bridge br0] ── p1 ── [namespace NAME-n1: eth0]
    """

    def __init__(self, name: str, *, size: int, prefix: str = "10.77") -> None:
        self.name, self.prefix = name, prefix
        self._relays: dict[Plug, _Relay] = {}
        self._held = contextlib.ExitStack()
        self.switch = f"{name}-sw"
        self.uplink = f"{name}r"
        self.plugs = tuple(
            Plug(
                namespace=f"{name}-n{number}",
                port=f"p{number}",
                address=f"{prefix}.{1 + (number - 1) // 250}.{(number - 1) % 250 + 1}",
            )
            for number in range(1, size + 1)
        )

    def __enter__(self) -> Self:
        """Waits while another run has a network of this name; takes away what a killed one left."""
        with contextlib.ExitStack() as held:
            lock = held.enter_context(open(f"/run/llmdeploy-lab-{self.name}.lock", "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            held.callback(self._take_away)
            self._take_away()
            self._make()
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        _ip([f"netns add {self.switch}"])
        _ip(["link add br0 type bridge", "link set br0 up", "link set lo up"], self.switch)
        _ip(
            [
                f"link add {self.uplink} type veth peer name up0 netns {self.switch}",
                f"addr add {self.prefix}.0.1/16 dev {self.uplink}",
                f"link set {self.uplink} up",
            ]
        )
        _ip(["link set up0 master br0 up"], self.switch)
        if shutil.which("nft"):
            self._nft(_RULES)
        _ip([f"netns add {plug.namespace}" for plug in self.plugs])
        lines = []
        for plug in self.plugs:
            lines += [
                f"link add {plug.port} type veth peer name eth0 netns {plug.namespace}",
                f"link set {plug.port} master br0 up",
            ]
        _ip(lines, self.switch)
        for plug in self.plugs:
            _ip(
                [
                    f"addr add {plug.address}/16 dev eth0",
                    "link set eth0 up",
                    "link set lo up",
                    f"route add default via {self.prefix}.0.1",
                ],
                plug.namespace,
            )

    def close(self) -> None:
        self._held.close()

    def _take_away(self) -> None:
        for plug in tuple(self._relays):
            self.unshape(plug)
        for left in sorted(pathlib.Path("/run/netns").glob(f"{self.name}-*")):
            run("ip", "netns", "del", left.name)
        subprocess.run(["ip", "link", "del", self.uplink], capture_output=True, check=False)

    def cut(self, plug: Plug) -> None:
        """The switch drops the frames; both ends keep their carrier."""
        _ip([f"link set {plug.port} nomaster"], self.switch)

    def heal(self, plug: Plug) -> None:
        _ip([f"link set {plug.port} master br0"], self.switch)

    def unplug(self, plug: Plug) -> None:
        """The cable is out: the host loses its carrier."""
        _ip([f"link set {plug.port} down"], self.switch)

    def plug_in(self, plug: Plug) -> None:
        _ip([f"link set {plug.port} up"], self.switch)

    def partition(self, some: Sequence[Plug], others: Sequence[Plug]) -> None:
        """Nothing passes between the two sides; this machine still reaches all."""
        pairs = [(a.port, b.port) for a in some for b in others]
        both = ", ".join(f'"{a}" . "{b}", "{b}" . "{a}"' for a, b in pairs)
        self._nft(f"add element bridge lab cut {{ {both} }}")

    def lose(self, plug: Plug, *, ratio: float) -> None:
        """Drops this share of the packets at random, in each direction."""
        for way in ("iifname", "oifname"):
            dice = f"numgen random mod 1000 < {round(ratio * 1000)}"
            self._nft(f"add rule bridge lab drops {way} {plug.port} {dice} drop")

    def block(self, plug: Plug, *, port: int) -> None:
        """A firewall before the host: nothing comes to that TCP port."""
        self._nft(f"add rule bridge lab drops oifname {plug.port} tcp dport {port} drop")

    def mend(self) -> None:
        """Takes back partitions, losses and blocks."""
        self._nft("flush set bridge lab cut\nflush chain bridge lab drops")

    def limit(self, plug: Plug, *, rate_bits_per_s: float | None, both_ways: bool = False) -> None:
        """A slower link towards the host, or both ways; as before where None is given."""
        ends = [(self.switch, plug.port), *([(plug.namespace, "eth0")] if both_ways else [])]
        for namespace, device in ends:
            inside = ("ip", "netns", "exec", namespace, "tc", "qdisc")
            where = ("dev", device, "root")
            subprocess.run([*inside, "del", *where], capture_output=True, check=False)
            if rate_bits_per_s:
                kbit = f"{rate_bits_per_s / 1000:g}kbit"
                # what the kernel sends at once is taken apart where the burst is smaller
                burst = f"{max(LEAST_BURST_BYTES, round(rate_bits_per_s / 8 * BURST_S))}b"
                shape = ("tbf", "rate", kbit, "burst", burst, "latency", "50ms")
                run(*inside, "add", *where, *shape)

    def shape(self, plug: Plug, **settings: float) -> None:
        """Delay and more by the relay: `delay_s`, `jitter_s`, `loss_ratio`, `rate_bits_per_s`."""
        relay = self._relays.get(plug)
        if relay:
            relay.settings.write_text(json.dumps(settings))
            time.sleep(0.3)  # it looks at its settings that often
            return
        near, far = f"q{plug.number}", f"r{plug.number}"
        _ip(
            [
                f"link add {near} type veth peer name {far}",
                f"link set {plug.port} nomaster",
                f"link set {far} master br0 up",
                f"link set {near} up",
            ],
            self.switch,
        )
        handle, path = tempfile.mkstemp(prefix="lab-relay-", suffix=".json")
        with os.fdopen(handle, "w") as file:
            json.dump(settings, file)
        program = str(pathlib.Path(__file__).with_name("relay.py"))
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.switch, sys.executable, program, plug.port, near, path],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._relays[plug] = _Relay(pathlib.Path(path), process, (near, far))
        time.sleep(0.5)  # its sockets are open

    def unshape(self, plug: Plug) -> None:
        relay = self._relays.pop(plug, None)
        if relay:
            relay.process.send_signal(signal.SIGTERM)
            relay.process.wait(5)
            relay.settings.unlink()
            _ip([f"link del {relay.inside[0]}"], self.switch)
            self.heal(plug)

    def _nft(self, rules: str) -> None:
        run("ip", "netns", "exec", self.switch, "nft", "-f", "-", stdin=f"{rules}\n")


def _ip(lines: list[str], namespace: str | None = None) -> None:
    inside = ["-n", namespace] if namespace else []
    run("ip", *inside, "-batch", "-", stdin="\n".join(lines) + "\n")
