"""Hosts with cards, fabrics and neighbours on which all is well, and one fault at a time."""

from dataclasses import replace
from typing import Any

from llmdeploy.facts.card import CardProcess, CardState, Link, PeerAccess, Topology
from llmdeploy.facts.check import Planned
from llmdeploy.facts.device import Accelerator, PciDevice
from llmdeploy.facts.finding import Status
from llmdeploy.facts.interface import FabricPort, Hostname
from llmdeploy.facts.kernel_log import KernelEvent
from llmdeploy.facts.runtime import Package
from llmdeploy.facts.upkeep import (
    DeviceNode,
    Drive,
    Segment,
    SshServer,
    StuckProcess,
    Updates,
)
from llmdeploy.inventory import Devices, Host
from llmdeploy.service import ModelSource

from . import hosts
from .hosts import AT_S, ETHERNET, GIB, MODEL, PACKAGES, cache_disks, disks, engine

FAIL, WARN, UNKNOWN = Status.FAIL, Status.WARN, Status.UNKNOWN


def cards(number: int, **changed: Any) -> tuple[Accelerator, ...]:
    values: dict[str, Any] = {
        "vendor": "nvidia", "name": "NVIDIA H100 80GB HBM3", "memory_total_bytes": 80 * GIB,
        "memory_free_bytes": 79 * GIB, "compute_capability": "9.0", "uncorrected_errors": 0,
        "driver_version": "570.195.03",
    }  # fmt: skip
    return tuple(
        Accelerator(
            index=i, uuid=f"GPU-{i}", pci_address=f"0000:0{i}:00.0", **{**values, **changed}
        )
        for i in range(number)
    )


def states(number: int, last: dict[str, Any] | None = None, **changed: Any) -> Any:
    """Good states; the last card's differ."""
    values: dict[str, Any] = {
        "vendor": "nvidia", "firmware": "96.00.99.00.01", "temperature_c": 31.0,
        "power_limit_w": 700.0, "power_default_w": 700.0, "busy_ratio": 0.0, "throttles": (),
        "pcie_generation": 5, "pcie_generation_max": 5, "pcie_lanes": 16, "pcie_lanes_max": 16,
        "persistent": True, "compute_mode": "Default", "partition": "Disabled",
        "partition_pending": "Disabled", "ecc": "Enabled", "ecc_pending": "Enabled",
        "sram_errors": 0, "rows_pending": False, "rows_failed": False, "rows_replaced": 0,
        "pages_double": 0, "pages_single": 0, "pages_pending": False, "fabric": "Completed",
    }  # fmt: skip
    values.update(changed)
    made = [CardState(index=i, **values) for i in range(number)]
    return (*made[:-1], made[-1].model_copy(update=last or {}))


def pci(number: int, vendor: str = "nvidia", driver: str | None = "nvidia") -> Any:
    return tuple(
        PciDevice(address=f"0000:0{i}:00.0", vendor=vendor, device="2330", driver=driver)
        for i in range(number)
    )


def matrix(word: str) -> Topology:
    return Topology(
        vendor="nvidia",
        cards=(0, 1),
        links=(("X", word), (word, "X")),
        numa=(0, 0),
        cpus=("0-31", "0-31"),
    )


def links(*rates: float | None) -> tuple[Link, ...]:
    return tuple(Link(index=i // 2, link=i % 2, bytes_per_s=r) for i, r in enumerate(rates))


def event(kind: Any, text: str, *, code: int | None = None, age_s: float = 60) -> Any:
    return (
        KernelEvent(kind=kind, code=code, address="0000:01:00.0", at_s=AT_S - age_s, text=text),
    )


def port(**changed: Any) -> tuple[FabricPort, ...]:
    good = FabricPort(
        device="mlx5_0", port=1, state="ACTIVE", physical="LinkUp", rate_bytes_per_s=2.5e10,
        link_layer="Ethernet", firmware="20.31.1014", model="MT4123", errors=0, downs=1,
        gids=("3 RoCE v2 10.0.0.5",),
    )  # fmt: skip
    return (good.model_copy(update=changed),)


NODES = tuple(
    DeviceNode(path=path, usable=True)
    for path in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/kfd", "/dev/davinci0",
                 "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
)  # fmt: skip
CLOSED = (*NODES[:3], DeviceNode(path="/dev/kfd", usable=False, group="render"))
H100: dict[str, Any] = {
    "pci_devices": pci(2), "accelerators": cards(2), "card_states": states(2),
    "card_topology": matrix("NV18"), "card_links": links(2.5e10, 2.5e10, 2.5e10, 2.5e10),
    "peer_access": PeerAccess(cards=(0, 1), words=(("X", "OK"), ("OK", "X"))),
    "torch_cuda_devices": 2, "torch_cuda_version": "12.8", "nccl_version": "2.27.5",
    "torch_architectures": ("sm_80", "sm_90"), "nvidia_module_version": "570.195.03",
    "nvidia_module_open": True, "fabric_manager_version": "570.195.03", "device_nodes": NODES,
    "kernel_modules": ("nvidia", "nvidia_peermem", "nvidia_uvm"), "fabric_ports": port(),
    "updates": Updates(reboot_required=False, kernels=("6.1.0",), automatic=True,
                       held=("nvidia-driver-570",), driver_installed="570.195.03"),
    "locked_memory_bytes": None, "virtualization": None,
    "drives": (Drive(name="nvme0", model="X", state="live"),),
    "drive_wear": ("nvme0n1 Percentage Used: 3%",),
}  # fmt: skip
AMD: dict[str, Any] = {
    "pci_devices": pci(2, "amd", "amdgpu"),
    "accelerators": cards(2, vendor="amd", name="AMD Instinct MI300X", compute_capability=None),
    "card_states": states(2, vendor="amd", architecture="gfx942", partition="SPX",
                          partition_pending=None, memory_partition="NPS1", fabric=None),
    "torch_cuda_devices": 2, "torch_architectures": ("gfx942:sramecc+:xnack-",),
    "torch_cuda_version": "6.3", "device_nodes": NODES, "locked_memory_bytes": None,
}  # fmt: skip
STACK = (
    *PACKAGES,
    Package(name="torch-npu", version="2.13.0.post1"),
    Package(name="vllm", version="0.23.0"),
    Package(name="vllm-ascend", version="0.23.0"),
)
ASCEND: dict[str, Any] = {
    "pci_devices": pci(2, "ascend", "devdrv_device_driver"),
    "accelerators": cards(2, vendor="ascend", name="Ascend 910B2", compute_capability=None),
    "card_states": states(2, vendor="ascend", health="OK", fabric=None),
    "npu_links": ("0 UP", "1 UP"), "packages": STACK, "device_nodes": NODES,
    "locked_memory_bytes": None,
}  # fmt: skip
METAX: dict[str, Any] = {
    "pci_devices": pci(1, "metax", "metax"),
    "accelerators": cards(1, vendor="metax", name="MetaX C500", compute_capability=None),
    "card_states": states(1, vendor="metax", health="Available", fabric=None),
    "locked_memory_bytes": None,
}
TWO = hosts.inventory(
    hosts=(Host(name="a", data_address="10.0.0.5"), Host(name="b", data_address="10.0.0.6"))
)
HERE = TWO.hosts[0]
PLAN = Planned(
    engine="vllm", tensor_parallel=2, cards=2, card_memory_bytes=60 * GIB,
    host_memory_bytes=8 * GIB, disk_bytes=20 * GIB, ports=(21000, 21001), weights="bf16",
    attention_heads=32, kv_heads=1,
)  # fmt: skip
FP8 = hosts.service(model=ModelSource(id="tiny", quantization="fp8"))
BLACKWELL = {
    **H100,
    "accelerators": cards(2, compute_capability="10.0"),
    "torch_architectures": ("sm_100",),
}
DECLARED = Host(devices=(Devices(device="H100", count=2),))
GOOD_ONES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({**H100, "glibc": "2.36"}, {"places": TWO, "host": HERE, "plan": PLAN}),
    (H100, {"wanted": FP8}),
    ({**H100, "numa_nodes": 2}, {"host": DECLARED}),
    (BLACKWELL, {}),
    (AMD, {}),
    (ASCEND, {"wanted": engine(device="cpu")}),
    (METAX, {"wanted": engine(device="cpu")}),
)
CLUSTER = {"places": TWO, "host": HERE}
SHARED = {"wanted": engine(tensor_parallel=2)}
VLLM = {"wanted": engine(kind="vllm")}


def _h100(**changed: Any) -> dict[str, Any]:
    return {**H100, **changed}


def _state(**last: Any) -> dict[str, Any]:
    return {**H100, "card_states": states(2, last=last)}


def _log(kind: Any, text: str, *, code: int | None = None) -> dict[str, Any]:
    return {**H100, "kernel_events": event(kind, text, code=code)}


def _net(**changed: Any) -> dict[str, Any]:
    return {"interfaces": (ETHERNET.model_copy(update=changed),)}


# fmt: off
BAD: tuple[tuple[str, Any, Status, dict[str, Any], str, str], ...] = (
    # check, facts, status, other inputs, in found, in needed
    ("gpu.bus.fallen_off", _log("bus_loss", "GPU has fallen off the bus"), FAIL,
     {}, "0000:01:00.0 fell", "bus"),
    ("gpu.bus.fallen_off", _log("xid", "Xid 79", code=79), WARN,
     {"wanted": engine(device="cpu")}, "0000:01:00.0", "bus"),
    ("gpu.xid.window", _log("xid", "Xid 95", code=95), FAIL, {}, "Xid 95 on 0000:01", "reset"),
    ("gpu.xid.window", _log("xid", "Xid 31", code=31), WARN, {}, "Xid 31", "reset"),
    ("gpu.xid.154", _log("xid", "Xid 154: GPU recovery action changed to Node Reboot Required",
                         code=154), FAIL, {}, "Node Reboot Required", "154"),
    ("drv.gsp", _log("xid", "Xid 119: Timeout waiting for RPC from GSP", code=119), FAIL,
     {}, "Xid 119", "GSP"),
    ("gpu.ecc.pending", _state(ecc_pending="Disabled"), WARN, {}, "card 1: Enabled", "ECC"),
    ("gpu.ecc.sram.aggregate", _state(sram_errors=7), WARN, {}, "card 1: 7", "at most 4"),
    ("gpu.remap.pending", _state(rows_pending=True), WARN, {}, "card 1", "row"),
    ("gpu.remap.failure", _state(rows_failed=True), FAIL, {}, "could not", "512"),
    ("gpu.remap.failure", _state(rows_replaced=513), FAIL, {}, "513 rows", "512"),
    ("gpu.retired.pages", _state(pages_double=1), WARN, {}, "1 double-bit", "60"),
    ("gpu.retired.pages", _state(pages_pending=True), WARN, {}, "reboot", "60"),
    ("gpu.inforom", _h100(accelerator_errors=("WARNING: infoROM is corrupted at gpu 0",)), WARN,
     {}, "infoROM", "read"),
    ("gpu.temp.margin", _state(temperature_c=80.0), WARN, {}, "80 °C", "15 °C"),
    ("gpu.temp.margin", _state(temperature_margin_c=6.0), WARN, {}, "31 °C", "15 °C"),
    ("gpu.throttle", _state(throttles=("hw_power_brake_slowdown",)), WARN,
     {}, "hw_power_brake_slowdown", "slowdown"),
    ("gpu.power.limit", _state(power_limit_w=500.0), WARN, {}, "500 W, 700 W", "one power"),
    ("gpu.power.limit", _state(power_limit_w=250.0), WARN, {}, "250 W of 700 W", "70%"),
    ("gpu.persistence", _state(persistent=False), WARN, {}, "card 1: off", "persistence"),
    ("gpu.compute.mode", _state(compute_mode="Exclusive_Process"), WARN,
     {}, "Exclusive_Process", "Default"),
    ("gpu.mig.mode", _state(partition="Enabled", partition_pending="Enabled"), WARN,
     {}, "MIG is on", "whole"),
    ("gpu.mig.mode", _state(partition="Enabled", partition_pending="Enabled"), FAIL,
     SHARED, "MIG is on", "whole"),
    ("gpu.mig.mode", _state(partition_pending="Enabled"), FAIL, {}, "after a reset", "MIG"),
    ("gpu.foreign.processes", _h100(card_processes=(CardProcess(
        vendor="nvidia", card="GPU-1", pid=4242, name="python3", memory_bytes=21 * GIB),)), FAIL,
     {}, "python3 (pid 4242) on GPU-1", "others"),
    ("gpu.pcie.link", _state(pcie_lanes=8), WARN, {}, "x8 of x16", "lanes"),
    ("gpu.pcie.link", _state(pcie_generation=1, busy_ratio=0.9), WARN,
     {}, "generation 1", "generation"),
    ("gpu.model.homogeneous", _h100(accelerators=(*cards(1), *cards(2, name="NVIDIA A40")[1:])),
     FAIL, SHARED, "NVIDIA A40", "one model"),
    ("gpu.arch.supported", _h100(torch_architectures=("sm_80",)), FAIL, {}, "sm_80", "kernels"),
    ("gpu.quant.capability", _h100(accelerators=cards(2, compute_capability="7.0")), FAIL,
     {"wanted": FP8}, "7.0, not 7.5", "fp8"),
    ("gpu.quant.capability", _h100(accelerators=cards(2, compute_capability="7.0")), FAIL,
     {"plan": replace(PLAN, weights="fp8_block")}, "7.0, not 7.5", "fp8_block"),
    ("sto.model.split", H100, FAIL,
     {"plan": replace(PLAN, tensor_parallel=3, attention_heads=32, kv_heads=8)},
     "32 attention heads, 8 KV heads", "3 processes can share (the plan's"),
    ("gpu.bf16", _h100(accelerators=cards(2, compute_capability="7.5")), WARN, {}, "7.5", "bf16"),
    ("gpu.amd.health", {**AMD, "kernel_events": event("amdgpu", "amdgpu: GPU reset begin!")}, FAIL,
     {}, "GPU reset", "AMD"),
    ("gpu.amd.partition", {**AMD, "card_states": states(2, vendor="amd", partition="CPX")}, WARN,
     {}, "CPX/?", "SPX"),
    ("gpu.amd.gfx", {**AMD, "torch_architectures": ("gfx90a",)}, FAIL, {}, "gfx942", "torch"),
    ("gpu.npu.health", {**ASCEND, "card_states": states(
        2, vendor="ascend", last={"health": "Alarm"}, health="OK")}, FAIL,
     {}, "card 1: Alarm", "OK"),
    ("gpu.vendor.health", {**METAX, "card_states": states(
        1, vendor="metax", health="Unavailable")}, FAIL, {}, "Unavailable", "healthy"),
    ("gpu.declared", H100, FAIL,
     {"host": Host(devices=(Devices(device="H100", count=8),))}, "2 answer", "8 x H100"),
    ("gpu.plan.memory", _h100(accelerators=cards(2, memory_free_bytes=10 * GIB)), FAIL,
     {"plan": PLAN}, "10.0 GiB", "60.0 GiB"),
    ("drv.bound", _h100(pci_devices=pci(2, driver=None)), FAIL, {}, "none on 0000:00", "driver"),
    ("drv.cuda.minimum", _h100(accelerators=cards(2, driver_version="470.82.01")), FAIL,
     {}, "470.82.01", "525.60"),
    ("drv.compat.libs", _h100(cuda_compat=("LD_LIBRARY_PATH",)), WARN,
     {}, "LD_LIBRARY_PATH", "libcuda"),
    ("drv.pending.reboot", {"updates": Updates(
        reboot_required=False, kernels=("6.1.0", "6.1.10"))}, WARN, {}, "6.1.10", "reboot"),
    ("drv.pending.reboot", _h100(updates=Updates(
        reboot_required=False, driver_installed="575.1.1")), WARN, {}, "575.1.1", "driver"),
    ("drv.pending.reboot", {"updates": Updates(reboot_required=True)}, WARN, {}, "asks", "reboot"),
    ("drv.autoupdate.held", _h100(updates=Updates(reboot_required=False, automatic=True)), WARN,
     {}, "nothing is held", "updates"),
    ("drv.uvm", _h100(device_nodes=NODES[:2]), FAIL, {}, "/dev/nvidia-uvm not there", "/dev"),
    ("drv.uvm", {**AMD, "device_nodes": CLOSED}, FAIL, {}, "/dev/kfd", "open to this user"),
    ("drv.open.module", {**BLACKWELL, "nvidia_module_open": False}, FAIL,
     {}, "proprietary", "Blackwell"),
    ("drv.fabricmanager", _state(fabric="In Progress"), FAIL, {}, "In Progress", "fabric"),
    ("drv.fabricmanager", _h100(fabric_manager_version="550.1"), FAIL,
     {}, "manager 550.1", "version"),
    ("drv.peermem", _h100(kernel_modules=(), nvidia_module_open=False), WARN,
     {}, "neither", "peermem"),
    ("drv.peermem.errors", _log("peermem", "nvidia-peermem ERROR detected invalid context"), WARN,
     {}, "invalid context", "peermem"),
    ("drv.jit.toolchain", _h100(tools=()), WARN, {}, "no gcc", "compiler"),
    ("drv.vbios.consistent", _state(firmware="96.00.01"), WARN, {}, "96.00.01", "firmware"),
    ("fab.topo", _h100(card_topology=matrix("SYS")), WARN, SHARED, "between 0-1", "socket"),
    ("fab.nvlink.active", _h100(card_links=links(2.5e10, 2.5e10, 2.5e10, None)), FAIL,
     {}, "card 1 link 1", "NVLink"),
    ("fab.nvlink.active", _h100(card_links=links(2.5e10, 2.5e10, 2.5e10)), FAIL,
     {}, "card 1: 1", "equally"),
    ("fab.sxid", _log("sxid", "SXid 20034, Fatal", code=20034), FAIL, {}, "20034", "NVSwitch"),
    ("fab.sxid", _log("sxid", "SXid 12028, Non-fatal", code=12028), WARN,
     {}, "12028, not fatal", "NVSwitch"),
    ("fab.p2p.reported", _h100(peer_access=PeerAccess(
        cards=(0, 1), words=(("X", "GNS"), ("GNS", "X")))), WARN, SHARED, "GNS", "copies"),
    ("fab.acs", _h100(acs_bridges=4), WARN, {}, "4 bridges", "ACS"),
    ("fab.iommu", _h100(iommu=True, kernel_arguments=("intel_iommu=on",)), WARN,
     {}, "intel_iommu=on", "iommu=pt"),
    ("fab.ib.port", {"fabric_ports": port(state="INIT")}, FAIL, {}, "mlx5_0: INIT", "up"),
    ("fab.ib.port", {"fabric_ports": port(state="DOWN", physical="Polling")}, WARN,
     {}, "Polling", "up"),
    ("fab.ib.errors", {"fabric_ports": port(errors=4000)}, WARN, {}, "4000 errors", "100 errors"),
    ("fab.ib.flap", _log("link_down", "mlx5_core: Link is Down"), WARN, {}, "1 times", "day"),
    ("fab.npu.hccn", {**ASCEND, "npu_links": ("0 UP", "1 DOWN")}, FAIL, {}, "1 DOWN", "Ascend"),
    ("net.hostname.resolves", {"hostname": Hostname(name="a", addresses=("127.0.1.1",))}, FAIL,
     CLUSTER, "127.0.1.1", "address"),
    ("net.hostname.resolves", {"hostname": Hostname(name="a")}, FAIL, CLUSTER, "nowhere", "name"),
    ("net.nic.health", _net(errors=500), WARN, CLUSTER, "500 errors", "100 errors"),
    ("net.nic.health", _net(up=False), FAIL, CLUSTER, "eth0 is down", "up"),
    ("net.same_subnet", {"interfaces": (ETHERNET, ETHERNET.model_copy(
        update={"name": "eth1", "networks": ("10.0.0.7/24",)}))}, WARN,
     CLUSTER, "eth0, eth1", "one interface"),
    ("net.vpn.transport", _net(name="wg0", kind="vpn"), WARN, CLUSTER, "wg0 is a vpn", "VPN"),
    ("net.proxy.env", {"environment_names": ("http_proxy",)}, WARN, {}, "http_proxy", "proxy"),
    ("net.firewall", {"firewall_rules": ("-A INPUT -p tcp --dport 21000 -j DROP",)}, WARN,
     CLUSTER, "21000 -j DROP", "rule"),
    ("net.ports.plan", {"listeners": (hosts.listener(21001),)}, FAIL,
     {"plan": PLAN}, "21001 by nginx", "ports"),
    ("os.hung.tasks", _log("hung_task", "INFO: task x blocked for more than 120 seconds"), WARN,
     {}, "blocked", "hung"),
    ("os.machine.check", _log("machine_check", "mce: [Hardware Error]"), WARN,
     {}, "Hardware Error", "fault"),
    ("os.oom.recent", _log("oom", "Out of memory: Killed process 1"), WARN, {}, "Killed", "day"),
    ("os.dstate", {"stuck_processes": (StuckProcess(pid=991, state="D", name="nvidia-smi"),)},
     WARN, {}, "nvidia-smi (pid 991)", "sleep"),
    ("os.file.max", {"file_max": 1024}, WARN, {}, "1024", "1000000"),
    ("os.shm.stale", {"shm_segments": (Segment(
        name="nccl-AbC", size_bytes=GIB, uid=1000, held=False),)}, WARN,
     {}, "nccl-AbC, 1.0 GiB", "left over"),
    ("os.ram.plan", {"memory_available_bytes": 4 * GIB}, FAIL,
     {"plan": PLAN}, "4.0 GiB", "8.0 GiB"),
    ("sto.model.lfs", {"model_pointers": ("tokenizer.json",), "model": MODEL}, FAIL,
     {}, "tokenizer.json", "Git-LFS"),
    ("sto.cache.dirs", {"cache_disks": cache_disks(no_exec=True)}, WARN,
     {}, "nothing may run", "caches"),
    ("sto.cache.dirs", {"cache_disks": cache_disks(writable=False)}, WARN,
     {}, "cannot be written", "caches"),
    ("sto.nvme", {"drives": (Drive(name="nvme1", model="X", state="dead"),)}, WARN,
     {}, "nvme1 (X) is dead", "live"),
    ("sto.nvme.wear", _h100(drive_wear=("nvme0n1 Percentage Used: 104%",)), WARN,
     {}, "104%", "100 %"),
    ("sto.space.plan",
     {"disks": disks(free_bytes=5 * GIB), "model": MODEL.model_copy(update={"problem": "none"})},
     FAIL, {"plan": PLAN}, "5.0 GiB", "20.0 GiB"),
    ("sec.secrets.argv", {"exposed_secrets": ("ours python3 (pid 7)",)}, FAIL,
     {}, "python3 (pid 7)", "key"),
    ("sec.secrets.argv", {"exposed_secrets": ("other python3 (pid 7)",)}, WARN,
     {}, "python3 (pid 7)", "key"),
    ("sec.ssh", {"ssh_server": SshServer(root_login="yes", password_authentication="no")}, WARN,
     {}, "PermitRootLogin yes", "keys only"),
    ("sec.danger.flags", {"environment_names": ("VLLM_SERVER_DEV_MODE",)}, WARN,
     {}, "VLLM_SERVER_DEV_MODE", "switch"),
    ("rt.env.libraries", {"environment_names": ("NCCL_P2P_LEVEL",)}, WARN,
     {}, "NCCL_P2P_LEVEL", "setting"),
    ("rt.engine.wheel", {"glibc": "2.17"}, FAIL, VLLM, "glibc 2.17", "2.28"),
    ("rt.engine.wheel", {"python_version": "3.9.2"}, FAIL, VLLM, "Python 3.9", "3.10"),
    ("rt.torch.cuda", _h100(torch_cuda_devices=1, environment_names=("CUDA_VISIBLE_DEVICES",)),
     WARN, {}, "1 of 2", "every card"),
    ("rt.torch.cuda", _h100(torch_cuda_devices=1), FAIL, {"plan": PLAN}, "1 of 2", "every card"),
    ("rt.ascend.set", {**ASCEND, "packages": (*STACK[:-1], Package(
        name="vllm-ascend", version="0.18.0"))}, FAIL,
     {}, "vllm-ascend 0.18.0 with vllm 0.23", "vLLM"),
    ("os.numa", _h100(numa_nodes=2, card_topology=matrix("SYS").model_copy(
        update={"numa": (0, None)})), WARN, {}, "1 cards", "NUMA"),
    ("net.ifname.pick", {}, WARN, {"places": hosts.inventory(hosts=(
        Host(name="a", data_address="10.0.0.5"), Host(name="b", data_address="10.9.0.6"))),
        "host": HERE}, "10.9.0.6 not in 10.0.0.0/24", "network"),
    ("rt.nccl.version", _h100(nccl_version="2.21.5"), WARN, SHARED, "2.21.5", "2.27.5"),
    ("rt.stale.cluster", {"engine_processes": ("other raylet (pid 9)",)}, FAIL,
     VLLM, "raylet (pid 9)", "cluster"),
    ("rt.stale.cluster", {"engine_processes": ("other ollama (pid 9)",)}, WARN,
     {}, "ollama (pid 9)", "engine"),
)
# fmt: on
