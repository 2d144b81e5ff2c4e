"""The facts bundle: what hosts said, with the time and the tool of every value (JSON)."""

from typing import Literal

from pydantic import Field

from llmdeploy.document import Document
from llmdeploy.errors import InputError
from llmdeploy.facts.active.measured import Measured
from llmdeploy.facts.card import CardProcess, CardState, Link, PeerAccess, Slice, Topology
from llmdeploy.facts.device import Accelerator, PciDevice
from llmdeploy.facts.interface import FabricPort, Hostname, Interface
from llmdeploy.facts.kernel_log import KernelEvent
from llmdeploy.facts.runtime import Import, Package, Tls
from llmdeploy.facts.storage import Disk, StoredModel
from llmdeploy.facts.upkeep import (
    DeviceNode,
    Drive,
    Segment,
    SshServer,
    StuckProcess,
    Updates,
)


class Source(Document):
    """Where one fact comes from, or why it could not be had."""

    fact: str
    tool: str
    at_s: float
    """Host's clock, seconds since 1970."""
    problem: str | None = None
    """Why the value is unknown; None: the value is what the host said, "none" included."""


class Listener(Document):
    """A TCP port that something on the host listens on."""

    address: str
    port: int
    process: str | None = None
    """`name (pid 12)`; None where this user may not see it."""
    ours: bool = False
    """Whether its command line names this service's folder under the state root."""


class Asked(Document):
    """What the host was asked about: a bundle answers for these paths and this model alone."""

    python: str
    state_root: str
    model_store: str
    service: str
    model: str
    measured: bool
    """Whether speeds were measured; False after `--quick`."""


class HostFacts(Document):
    """One host. None means no such thing (no limit, no governor) where the fact's source has no
    problem, and unknown where it has one."""

    host: str
    asked: Asked
    collected_s: float
    """The controller's clock when the answer was complete."""
    duration_s: float
    sources: tuple[Source, ...]

    kernel: str | None = None
    machine: str | None = None
    """`x86_64`, `aarch64`."""
    kernel_arguments: tuple[str, ...] | None = None
    """Those of iommu, PCI and NVIDIA; others are never read."""
    kernel_modules: tuple[str, ...] | None = None
    """Loaded modules of accelerators and fabrics."""
    kernel_events: tuple[KernelEvent, ...] | None = None
    """Trouble since it started, as its log tells."""
    iommu: bool | None = None
    """Whether one translates addresses of devices."""
    acs_bridges: int | None = None
    """PCI bridges that send copies between cards through the processor."""
    device_nodes: tuple[DeviceNode, ...] | None = None
    updates: Updates | None = None
    active_services: tuple[str, ...] | None = None
    """Those of a fixed list: drivers' daemons, firewalls, containers, clocks."""
    firewall_rules: tuple[str, ...] | None = None
    """Rules that drop or reject."""
    fabric_manager_version: str | None = None
    """None: not installed."""
    tools: tuple[str, ...] | None = None
    """Programs of a fixed list that are there."""
    cuda_compat: tuple[str, ...] | None = None
    """Where a forward-compatibility libcuda is on the loader's path."""
    stuck_processes: tuple[StuckProcess, ...] | None = None
    engine_processes: tuple[str, ...] | None = None
    """`ours NAME (pid 1)` or `other …`: running engines and their helpers."""
    exposed_secrets: tuple[str, ...] | None = None
    """`ours NAME (pid 1)` or `other …`: processes with a key or token in their arguments; the
    arguments themselves are never kept."""
    ssh_server: SshServer | None = None
    system: str | None = None
    """`Linux`."""
    os_name: str | None = None
    glibc: str | None = None
    virtualization: str | None = None
    init: str | None = None
    """Name of process 1."""
    user_manager: str | None = None
    """What `systemctl --user is-system-running` says; None where nothing answers."""

    cpu_model: str | None = None
    cpu_cores: int | None = None
    """Cores this user's processes may run on."""
    cpu_ids: tuple[int, ...] | None = None
    """Their numbers, for pinning."""
    cpu_physical_cores: int | None = None
    """Cores of the host without their second threads."""
    cpu_flags: tuple[str, ...] | None = None
    """Those that decide speed: AVX, AMX, bf16, SVE."""
    cpu_quota_cores: float | None = None
    """The cgroup's CPU quota, in cores; None: no quota."""
    cpu_governor: str | None = None
    load_1min: float | None = None
    """Runnable processes, mean over a minute, before the probe's own work."""
    core_matmul_flops_per_s: float | None = None
    """Measured: bf16 matrix product on one thread."""
    core_memory_read_bytes_per_s: float | None = None
    """Measured: sequential read of memory by one thread."""
    memory_read_bytes_per_s: float | None = None
    """Measured: sequential read of memory by all cores together."""

    numa_nodes: int | None = None

    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """The smallest cgroup limit over this user's processes; None: no limit."""
    memory_limit_used_bytes: int | None = None
    """Memory charged to the cgroup that has that limit, without its page cache."""
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    oom_kills: int | None = None
    """Processes the kernel killed for memory since it started."""
    file_max: int | None = None
    """Open files of the whole host."""
    shm_segments: tuple[Segment, ...] | None = None
    """Files of engines and their libraries in /dev/shm."""
    open_files: int | None = None
    """Soft limit a process; None: no limit."""
    processes: int | None = None
    """Soft limit of processes of this user; None: no limit."""
    locked_memory_bytes: int | None = None
    """Soft limit a process; None: no limit."""

    disks: tuple[Disk, ...] | None = None
    cache_disks: tuple[Disk, ...] | None = None
    """Behind `~/.cache` and the folder for temporary files."""
    drives: tuple[Drive, ...] | None = None
    """NVMe drives."""
    drive_wear: tuple[str, ...] | None = None
    """`nvme0n1 Percentage Used: 3%`: what only root may read."""
    store_encrypted: bool | None = None
    """Whether the model store's disk is encrypted."""
    disk_read_bytes_per_s: float | None = None
    """Measured: sequential read of the model's largest file past the page cache."""

    listeners: tuple[Listener, ...] | None = None
    addresses: tuple[str, ...] | None = None
    """IP addresses of the host itself."""
    interfaces: tuple[Interface, ...] | None = None
    fabric_ports: tuple[FabricPort, ...] | None = None
    """InfiniBand and RoCE."""
    hostname: Hostname | None = None
    no_proxy_covers: tuple[str, ...] | None = None
    """Which of `localhost`, `127.0.0.1` and `*` stand in no_proxy."""
    ephemeral_first: int | None = None
    """First port the kernel gives to outgoing connections."""
    ephemeral_last: int | None = None
    unprivileged_port: int | None = None
    """Lowest port that a user other than root may listen on."""
    clock_offset_s: float | None = None
    """Host's clock minus the controller's, to a second."""
    clock_synchronised: bool | None = None
    utc_offset: str | None = None
    """Of the host's time zone, such as `+0800`."""

    user: str | None = None
    uid: int | None = None
    environment_names: tuple[str, ...] | None = None
    """Which of a fixed list of variables are set; their values are never read."""

    python_version: str | None = None
    python_error: str | None = None
    """Why the host's Python does not start; None where it does."""
    packages: tuple[Package, ...] | None = None
    imports: tuple[Import, ...] | None = None
    """Which packages really import, and how long that takes."""
    bitsandbytes_devices: tuple[str, ...] | None = None
    torch_cuda_devices: int | None = None
    torch_cuda_version: str | None = None
    """CUDA that torch was built for; None: built without."""
    torch_architectures: tuple[str, ...] | None = None
    """`sm_90`, `compute_90`, `gfx942`: what torch has kernels for."""
    nccl_version: str | None = None
    architecture_known: bool | None = None
    """Whether transformers has the model's class; None without a model."""
    envoy_version: str | None = None
    """What the gateway's binary answers to `--version`."""
    envoy_error: str | None = None
    """Why there is no such answer; None where there is one."""
    tls: Tls | None = None

    pci_devices: tuple[PciDevice, ...] | None = None
    """Accelerators on the PCI bus, with or without a driver."""
    accelerators: tuple[Accelerator, ...] | None = None
    """Accelerators that a driver answers for."""
    accelerator_errors: tuple[str, ...] | None = None
    """What the vendor's tool said instead of an answer."""
    nvidia_module_version: str | None = None
    """The loaded kernel module's; None: not loaded."""
    nvidia_module_open: bool | None = None
    """Whether it is the open flavour."""
    card_states: tuple[CardState, ...] | None = None
    card_processes: tuple[CardProcess, ...] | None = None
    """Who holds memory of cards now."""
    card_slices: tuple[Slice, ...] | None = None
    """MIG devices."""
    card_topology: Topology | None = None
    """None: one card, or a vendor whose tool draws none."""
    card_links: tuple[Link, ...] | None = None
    """NVLinks, one by one."""
    peer_access: PeerAccess | None = None
    npu_links: tuple[str, ...] | None = None
    """`0 UP`: the fabric link of each Ascend chip; None: no Ascend."""

    model: StoredModel | None = None
    model_pointers: tuple[str, ...] | None = None
    """Files of the model that are a Git-LFS pointer or a web page instead."""

    def problem(self, fact: str) -> str | None:
        """Why the fact is unknown, in words; None where the host said it."""
        for source in self.sources:  # a loop: it is asked for each fact of each host
            if source.fact == fact:
                return source.problem
        return "it was not asked"

    def known(self, *facts: str) -> bool:
        """Whether the host said all of these facts."""
        return all(self.problem(fact) is None for fact in facts)

    @property
    def usable_memory_bytes(self) -> int | None:
        """What new processes can take now: available memory, and no more than the cgroup leaves."""
        if self.memory_available_bytes is None or not self.known("memory_limit_bytes"):
            return None
        if self.memory_limit_bytes is None:
            return self.memory_available_bytes
        left_bytes = self.memory_limit_bytes - (self.memory_limit_used_bytes or 0)
        return max(0, min(self.memory_available_bytes, left_bytes))


class Unreached(Document):
    """A host that gave no facts: it was not reached, or did not answer in time."""

    host: str
    collected_s: float
    """The controller's clock when it was given up."""
    duration_s: float
    found: str
    fix: str


class Bundle(Document):
    """Facts of all hosts of a cluster; every check can be replayed from it."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    llmdeploy: str
    """Version that collected it."""
    hosts: tuple[HostFacts, ...]
    unreached: tuple[Unreached, ...] = ()
    measured: Measured | None = None
    """What active tests measured; None: `--level quick`, or a bundle from before there were any."""

    def host(self, name: str) -> HostFacts:
        """The facts of one host; InputError where the bundle has none of it."""
        for facts in self.hosts:
            if facts.host == name:
                return facts
        there = ", ".join(facts.host for facts in self.hosts) or "none"
        raise InputError(
            f"facts: found hosts {there}, needed {name}",
            fix="collect them again: llmdeploy preflight service.yaml --out facts.json",
        )
