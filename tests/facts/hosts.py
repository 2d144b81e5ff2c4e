"""A host on which every check is content, and ways to spoil it."""

from typing import Any

from llmdeploy.facts.bundle import Asked, Bundle, HostFacts, Listener, Source
from llmdeploy.facts.check import Planned, Question
from llmdeploy.facts.checks.runtime import ENGINE
from llmdeploy.facts.checks.table import CHECKS
from llmdeploy.facts.examine import Report, examine
from llmdeploy.facts.finding import Finding
from llmdeploy.facts.interface import Hostname, Interface
from llmdeploy.facts.runtime import Import, Package
from llmdeploy.facts.storage import Disk, StoredFile, StoredModel
from llmdeploy.facts.upkeep import SshServer, Updates
from llmdeploy.inventory import Host, Inventory
from llmdeploy.model import ModelShape
from llmdeploy.service import Engine, Gateway, ModelSource, Service

AT_S = 1_800_000_000.0
GIB = 2**30
ASKED = Asked(
    python="/opt/llm/bin/python",
    state_root="/var/lib/llm",
    model_store="/srv/models",
    service="chat",
    model="tiny",
    measured=True,
)
SHAPE = ModelShape(
    architecture="LlamaForCausalLM", layers=30, hidden_size=576, intermediate_size=1536,
    attention_heads=9, kv_heads=3, head_dim=64, vocabulary_size=49152, max_positions=8192,
    tied_embeddings=True, dtype="bfloat16",
)  # fmt: skip
MODEL = StoredModel(
    folder="/srv/models/tiny",
    problem=None,
    files=(StoredFile(name="model.safetensors", manifest_bytes=1000, found_bytes=1000),),
    weights_bytes=256 * 2**20,
    parameters=134_515_008,
    shape=SHAPE,
    chat_template=True,
    mode=0o750,
)
PACKAGES = tuple(
    Package(name=name, version=version)
    for name, version in (
        ("llmdeploy", "0.1.0"),
        ("torch", "2.13.0+cpu"),
        ("transformers", "5.24.0"),
        ("supervisor", "4.3.0"),
    )
)
IMPORTS = tuple(Import(name=n, duration_s=0.5, error=None) for n in (*ENGINE, "bitsandbytes"))
_UNSAID = {"host", "asked", "collected_s", "duration_s", "sources"}


def disk(purpose: str, **changed: Any) -> Disk:
    """A disk with room; `changed` says what is different."""
    values: dict[str, Any] = {
        "purpose": purpose, "path": "/var/lib/llm", "nearest": "/var/lib/llm", "filesystem": "ext4",
        "mount": "/", "read_only": False, "total_bytes": 100 * GIB, "free_bytes": 50 * GIB,
        "free_inodes": 1_000_000, "writable": True, "mode": 0o700, "owner_uid": 1000,
    }  # fmt: skip
    return Disk(**{**values, **changed})


def disks(**changed: Any) -> tuple[Disk, ...]:
    return tuple(disk(purpose, **changed) for purpose in ("state_root", "log", "model_store"))


def listener(port: int) -> Listener:
    return Listener(address="0.0.0.0", port=port, process="nginx (pid 12)")


def cache_disks(**changed: Any) -> tuple[Disk, ...]:
    return tuple(disk(purpose, **changed) for purpose in ("cache", "temporary"))


ETHERNET = Interface(
    name="eth0", kind="physical", up=True, mtu=1500, speed_bytes_per_s=1.25e9, full_duplex=True,
    driver="mlx5_core", pci_address="0000:81:00.0", errors=0, drops=0, carrier_changes=2,
    networks=("10.0.0.5/24",),
)  # fmt: skip
GOOD: dict[str, Any] = {
    "system": "Linux", "kernel": "6.1.0", "machine": "x86_64", "os_name": "Debian", "glibc": "2.36",
    "init": "systemd", "user_manager": "running", "cpu_model": "EPYC", "cpu_cores": 4,
    "cpu_ids": (0, 1, 2, 3), "cpu_physical_cores": 4, "cpu_flags": ("avx2", "avx512_bf16"),
    "cpu_governor": "performance", "load_1min": 0.25, "core_matmul_flops_per_s": 2e11,
    "core_memory_read_bytes_per_s": 2.5e10, "memory_read_bytes_per_s": 3e10,
    "memory_total_bytes": 16 * GIB, "memory_available_bytes": 12 * GIB, "swap_total_bytes": 0,
    "swap_used_bytes": 0, "shm_total_bytes": 8 * GIB, "shm_free_bytes": 8 * GIB, "oom_kills": 0,
    "open_files": 1_048_576, "processes": 60_000, "locked_memory_bytes": 8 * 2**20,
    "disks": disks(), "disk_read_bytes_per_s": 1e9, "listeners": (),
    "addresses": ("10.0.0.5", "127.0.0.1"), "ephemeral_first": 32768, "ephemeral_last": 60999,
    "unprivileged_port": 1024, "clock_offset_s": 0.0, "clock_synchronised": True, "user": "llm",
    "uid": 1000, "environment_names": (), "python_version": "3.11.7", "packages": PACKAGES,
    "imports": IMPORTS, "bitsandbytes_devices": ("cpu", "cuda"), "torch_cuda_devices": 0,
    "architecture_known": True, "envoy_version": "1.40.0", "pci_devices": (), "accelerators": (),
    "accelerator_errors": (), "model": MODEL, "kernel_arguments": (), "kernel_modules": (),
    "kernel_events": (), "iommu": False, "acs_bridges": 0, "device_nodes": (),
    "updates": Updates(reboot_required=False, kernels=("6.1.0",), automatic=False),
    "active_services": (), "firewall_rules": (), "tools": ("gcc", "g++"), "cuda_compat": (),
    "stuck_processes": (), "engine_processes": (), "exposed_secrets": (),
    "ssh_server": SshServer(password_authentication="no", root_login="no"), "numa_nodes": 1,
    "file_max": 9_000_000, "shm_segments": (), "cache_disks": cache_disks(), "drives": (),
    "drive_wear": (), "store_encrypted": True, "interfaces": (ETHERNET,), "fabric_ports": (),
    "hostname": Hostname(name="node", addresses=("10.0.0.5",)), "no_proxy_covers": (),
    "utc_offset": "+0000", "torch_architectures": (), "card_states": (), "card_processes": (),
    "card_slices": (), "card_links": (), "model_pointers": (),
}  # fmt: skip


def facts(*, unknown: tuple[str, ...] = (), asked: Asked = ASKED, **changed: Any) -> HostFacts:
    """The good host's facts with `changed` ones; those in `unknown` could not be had."""
    values = {**GOOD, **changed}
    return HostFacts(
        host="local",
        asked=asked,
        collected_s=AT_S,
        duration_s=8.0,
        sources=tuple(
            Source(
                fact=name,
                tool="/proc/made-up",
                at_s=AT_S,
                problem="the tool is missing" if name in unknown else None,
            )
            for name in HostFacts.model_fields
            if name not in _UNSAID
        ),
        **{name: None if name in unknown else value for name, value in values.items()},
    )


def nothing_known() -> HostFacts:
    """A host on which no tool answers."""
    return facts(unknown=tuple(name for name in HostFacts.model_fields if name not in _UNSAID))


def service(**changed: Any) -> Service:
    return _copy(Service(cluster="cluster.yaml", model=ModelSource(id="tiny")), changed)


def engine(**changed: Any) -> Service:
    return service(engine=_copy(Engine(), changed))


def gateway(**changed: Any) -> Service:
    return service(gateway=_copy(Gateway(), changed))


def inventory(**changed: Any) -> Inventory:
    return _copy(Inventory(schema=1, state_root="/var/lib/llm", model_store="/srv/models"), changed)


def _copy(document: Any, changed: dict[str, Any]) -> Any:
    return document.model_copy(update=changed)


def answer(
    check_id: str,
    said: HostFacts,
    *,
    wanted: Service | None = None,
    places: Inventory | None = None,
    host: Host | None = None,
    plan: Planned | None = None,
) -> Finding:
    """What one check of the table says."""
    check = next(check for check in CHECKS if check.id == check_id)
    outcome = check.judge(
        Question(
            facts=said,
            host=host or Host(),
            inventory=places or inventory(),
            service=wanted or service(),
            llmdeploy="0.1.0",
            planned=plan,
        )
    )
    return Finding(
        check=check_id,
        status=outcome.status,
        subject="local",
        found=outcome.found,
        needed=outcome.needed,
        fix=outcome.fix,
    )


def report(said: HostFacts, *, wanted: Service | None = None) -> Report:
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(said,))
    return examine(bundle, service=wanted or service(), inventory=inventory())
