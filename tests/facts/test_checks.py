"""Each check: content with a good host, and not with a bad one; both values stand in its words."""

from typing import Any

import pytest

from llmdeploy.facts.bundle import HostFacts, Listener
from llmdeploy.facts.checks.table import CHECKS
from llmdeploy.facts.device import Accelerator, PciDevice
from llmdeploy.facts.finding import Status
from llmdeploy.facts.runtime import Import, Package, Tls
from llmdeploy.facts.section import UNTRIED
from llmdeploy.facts.storage import StoredFile
from llmdeploy.inventory import Host, Ports
from llmdeploy.service import ModelSource, Objectives

from . import hosts, spoiled
from .hosts import AT_S, GIB, IMPORTS, MODEL, PACKAGES, answer, disks, engine, facts, gateway

NVIDIA = PciDevice(address="0000:4f:00.0", vendor="nvidia", device="2235", driver="nvidia")
NOUVEAU = NVIDIA.model_copy(update={"driver": "nouveau"})
CARD = Accelerator(
    vendor="nvidia", index=0, name="NVIDIA A40", uuid="GPU-1", pci_address="0000:4f:00.0",
    memory_total_bytes=48 * GIB, memory_free_bytes=47 * GIB, compute_capability="8.6",
    driver_version="550.127.05", uncorrected_errors=0,
)  # fmt: skip
FULL = CARD.model_copy(update={"memory_free_bytes": 10 * GIB})
SICK = CARD.model_copy(update={"uncorrected_errors": 3})
GPU_HOST: dict[str, Any] = {
    "pci_devices": (NVIDIA,),
    "accelerators": (CARD,),
    "torch_cuda_devices": 1,
    "nvidia_module_version": "550.127.05",
    "locked_memory_bytes": None,
    "torch_architectures": ("sm_80", "sm_86"),
    "torch_cuda_version": "12.8",
    "nccl_version": "2.27.5",
    "device_nodes": spoiled.NODES,
}
CUT = MODEL.model_copy(
    update={"files": (StoredFile(name="a.safetensors", manifest_bytes=9, found_bytes=5),)}
)
GONE = MODEL.model_copy(
    update={"files": (StoredFile(name="tokenizer.json", manifest_bytes=9, found_bytes=None),)}
)
ABSENT = MODEL.model_copy(update={"problem": "it is not in the store"})
NO_TORCH = (Import(name="torch", duration_s=0.1, error="OSError: libgomp.so.1"), *IMPORTS[1:])
NO_BNB = (*IMPORTS[:-1], Import(name="bitsandbytes", duration_s=None, error="importing it hangs"))
OLD_TORCH = (PACKAGES[0], Package(name="torch", version="2.9.1"), *PACKAGES[2:])
NO_SUPERVISOR = (*PACKAGES[:3], Package(name="supervisor", version=None))
OTHER_LLMDEPLOY = (Package(name="llmdeploy", version="0.0.9"), *PACKAGES[1:])
NGINX = Listener(address="0.0.0.0", port=8080, process="nginx (pid 12)")
CROWD = tuple(Listener(address="::", port=port) for port in range(21000, 21400, 8))
TLS = gateway(tls_certificate="/c.pem", tls_key="/k.pem")

FAIL, WARN = Status.FAIL, Status.WARN
# fmt: off
BAD: tuple[tuple[str, Any, Status, dict[str, Any], str, str], ...] = (
    # check, facts, status, other inputs, in found, in needed
    ("os.kernel", {"machine": "riscv64"}, FAIL, {}, "riscv64", "aarch64"),
    ("os.glibc", {"glibc": "2.28"}, FAIL, {}, "2.28", "2.31"),
    ("os.supervisor", {"user_manager": None, "packages": NO_SUPERVISOR}, FAIL,
     {}, "neither", "systemd"),
    ("os.nofile", {"open_files": 1024}, WARN, {}, "1024", "65535"),
    ("os.nproc", {"processes": 100}, WARN, {}, "100", "4096"),
    ("os.memlock", {**GPU_HOST, "locked_memory_bytes": 65536}, WARN, {}, "64.0 KiB", "16.0 GiB"),
    ("os.shm", {"shm_free_bytes": 64 * 2**20}, WARN, {}, "64.0 MiB", "1.0 GiB"),
    ("os.shm", {**GPU_HOST, "accelerators": (CARD, CARD), "shm_free_bytes": GIB}, FAIL,
     {}, "1.0 GiB", "2.0 GiB"),
    ("os.swap", {"swap_used_bytes": GIB}, WARN, {}, "1.0 GiB", "no memory"),
    ("os.oom.history", {"oom_kills": 2}, WARN, {}, "2 killed", "no process"),
    ("cpu.cores", {"cpu_cores": 1}, WARN, {}, "1 cores", "2 cores"),
    ("cpu.cores", {}, FAIL, {"wanted": engine(tensor_parallel=6)}, "4 cores", "6 each"),
    ("cpu.quota", {"cpu_quota_cores": 1.5}, WARN, {}, "1.5 of 4", "quota"),
    ("cpu.instructions", {"cpu_flags": ("avx2",)}, WARN, {}, "avx2", "bf16"),
    ("cpu.load", {"load_1min": 3.0}, WARN, {}, "load 3 on 4", "50 %"),
    ("os.cpu.governor", {"cpu_governor": "powersave"}, WARN, {}, "powersave", "governor"),
    ("cpu.compute.speed", {"core_matmul_flops_per_s": 1e10}, WARN, {}, "13.8 s", "2 s"),
    ("os.ram", {"memory_available_bytes": GIB}, FAIL, {}, "1.0 GiB usable", "1.2 GiB in 80 %"),
    ("os.ram", {"memory_limit_bytes": GIB}, FAIL, {}, "cgroup limit of 1.0 GiB", "1.2 GiB"),
    ("os.ram.twice", {"memory_available_bytes": 2 * GIB}, WARN, {}, "2.0 GiB", "2.5 GiB"),
    ("memory.read.speed", {"memory_read_bytes_per_s": 1e9}, WARN, {}, "268 ms", "200 ms"),
    ("sto.space", {"disks": disks(free_bytes=GIB // 2)}, FAIL, {}, "512.0 MiB", "1.0 GiB"),
    ("sto.space", {"disks": disks(free_bytes=2 * GIB)}, WARN, {}, "2.0 GiB", "5.0 GiB"),
    ("sto.space", {"disks": disks(free_inodes=7)}, FAIL, {}, "7 inodes", "10000 inodes"),
    ("sto.space", {"disks": disks(free_inodes=0)}, FAIL, {}, "0 inodes", "10000 inodes"),
    ("sto.space.log", {"disks": disks(free_bytes=GIB // 2)}, FAIL, {}, "512.0 MiB", "1.0 GiB"),
    ("sto.space.store", {"disks": disks(free_bytes=2**20)}, WARN, {}, "1.0 MiB", "281.6 MiB"),
    ("sto.space.store", {"disks": disks(free_bytes=2**20), "model": ABSENT}, FAIL,
     {}, "1.0 MiB", "1.0 GiB"),
    ("sto.mount.health", {"disks": disks(writable=False)}, FAIL, {}, "/var/lib/llm", "write"),
    ("sto.mount.health", {"disks": disks(read_only=True)}, FAIL, {}, "read-only", "write"),
    ("sto.filesystem", {"disks": disks(filesystem="nfs4")}, FAIL, {}, "nfs4", "local"),
    ("sto.read.speed", {"disk_read_bytes_per_s": 1e6}, WARN, {}, "4 min 28 s", "1 min 0 s"),
    ("net.ports.gateway", {"listeners": (NGINX,)}, FAIL, {}, "nginx (pid 12)", "127.0.0.1:8080"),
    ("net.ports.free", {"listeners": CROWD}, FAIL, {}, "0 of 50", "2 free blocks"),
    ("net.ports.free", {"listeners": CROWD[1:]}, WARN, {}, "1 of 50", "2 free blocks"),
    ("net.ports.ephemeral", {"ephemeral_first": 20000}, WARN, {}, "20000-60999", "21000-21399"),
    ("net.ports.privileged", {}, FAIL, {"wanted": gateway(port=80)}, "port 80", "1024"),
    ("net.addresses", {}, FAIL, {"wanted": gateway(host="10.9.9.9")}, "10.0.0.5", "10.9.9.9"),
    ("net.addresses", {}, FAIL, {"wanted": gateway(host="nowhere")}, "'nowhere'", "nowhere"),
    ("time.sync", {"clock_synchronised": False}, WARN, {}, "not synchronised", "time service"),
    ("time.offset", {"clock_offset_s": -90.0}, FAIL, {}, "-90 s", "5 s"),
    ("rt.python", {"python_version": "3.9.2"}, FAIL, {}, "3.9.2", "3.11"),
    ("rt.python", {"python_version": None, "python_error": "not found"}, FAIL,
     {}, "not found", "3.11"),
    ("rt.llmdeploy", {"packages": OTHER_LLMDEPLOY}, FAIL, {}, "0.0.9", "0.1.0"),
    ("rt.lock", {"packages": OLD_TORCH}, FAIL, {}, "torch 2.9.1", "torch 2.13."),
    ("rt.engine.import", {"imports": NO_TORCH}, FAIL, {}, "libgomp", "torch"),
    ("rt.quantisation", {"imports": NO_BNB}, FAIL, {"wanted": "int8"}, "hangs", "bitsandbytes"),
    ("rt.quantisation", {"bitsandbytes_devices": ("cuda",)}, FAIL,
     {"wanted": "nf4"}, "cuda", "cpu"),
    ("rt.model.arch", {"architecture_known": False}, FAIL, {}, "LlamaForCausalLM", "class"),
    ("rt.envoy", {"envoy_version": None, "envoy_error": "no binary in it"}, FAIL,
     {}, "no binary", "1.37"),
    ("rt.envoy", {"envoy_version": "1.30.0"}, FAIL, {}, "1.30.0", "1.37"),
    ("rt.env.bad", {"environment_names": ("LD_PRELOAD", "HF_HOME")}, WARN,
     {}, "set: LD_PRELOAD", "LD_*"),
    ("sec.nonroot", {"uid": 0, "user": "root"}, WARN, {}, "root", "not root"),
    ("sec.state.perm", {"disks": disks(mode=0o777)}, FAIL, {}, "0777", "others"),
    ("sec.state.perm", {"disks": disks(mode=0o770)}, WARN, {}, "0770", "others"),
    ("sec.weights.perm", {"model": MODEL.model_copy(update={"mode": 0o777})}, WARN,
     {}, "0777", "owner"),
    ("sec.bind", {}, FAIL, {"host": Host(data_address="0.0.0.0")}, "0.0.0.0", "private"),
    ("sec.bind", {}, FAIL, {"host": Host(data_address="8.8.8.8")}, "8.8.8.8", "private"),
    ("sec.gateway.tls", {}, WARN, {"wanted": gateway(host="0.0.0.0")}, "0.0.0.0", "TLS"),
    ("sec.gateway.allow", {}, WARN, {"wanted": gateway(allow=("::/0",))}, "::/0", "everyone"),
    ("sec.gateway.allow", {}, FAIL,
     {"wanted": gateway(allow=("10.0.0.0/33",))}, "10.0.0.0/33", "CIDR"),
    ("sec.gateway.allow", {}, FAIL, {"wanted": gateway(allow=())}, "no network", "CIDR"),
    ("sec.tls", {}, FAIL, {"wanted": gateway(tls_key="/k.pem")}, "only one", "key"),
    ("sec.tls", {"tls": Tls(problem="key mismatch", until_s=None)}, FAIL,
     {"wanted": TLS}, "mismatch", "match"),
    ("sec.tls", {"tls": Tls(problem=None, until_s=AT_S - 86400)}, FAIL,
     {"wanted": TLS}, "1 days ago", "14 days"),
    ("sec.tls", {"tls": Tls(problem=None, until_s=AT_S + 5 * 86400)}, WARN,
     {"wanted": TLS}, "5 days", "14 days"),
    ("gpu.device", {}, FAIL, {"wanted": engine(device="cuda")}, "0 CUDA", "cuda"),
    ("gpu.device", {"pci_devices": (NVIDIA,)}, WARN, {}, "1 accelerators", "auto"),
    ("gpu.smi.responsive", {"accelerator_errors": ("GPU is lost",)}, FAIL, {}, "lost", "answer"),
    ("gpu.smi.responsive", {"accelerator_errors": ("GPU is lost",)}, WARN,
     {"wanted": engine(device="cpu")}, "lost", "answer"),
    ("gpu.visible.count", {"pci_devices": (NVIDIA,)}, FAIL,
     {}, "0 of 1 answer, not 0000:4f", "every"),
    ("gpu.ecc.uncorrected", {**GPU_HOST, "accelerators": (SICK,)}, FAIL,
     {}, "card 0: 3", "no uncorrected"),
    ("gpu.memory.free", {**GPU_HOST, "accelerators": (FULL,)}, WARN,
     {}, "10.0 GiB of 48.0", "nothing"),
    ("drv.nvml.match", {**GPU_HOST, "nvidia_module_version": "535.1"}, FAIL,
     {}, "module 535.1, library 550", "one"),
    ("drv.nouveau", {"pci_devices": (NOUVEAU,)}, FAIL, {}, "0000:4f:00.0 is", "nouveau"),
    ("sto.model.present", {"model": ABSENT}, FAIL, {}, "not in the store", "tiny"),
    ("sto.model.index", {"model": CUT}, FAIL, {}, "5 bytes, not 9", "1 files"),
    ("sto.model.index", {"model": GONE}, FAIL, {}, "tokenizer.json is missing", "1 files"),
    ("sto.model.config", {}, FAIL, {"wanted": engine(max_model_len=9000)}, "8192", "9000"),
    ("sto.model.split", {}, FAIL,
     {"wanted": engine(tensor_parallel=2)}, "9 attention heads, 3 KV", "2"),
    ("sto.tokenizer", {"model": MODEL.model_copy(update={"chat_template": False})}, WARN,
     {}, "none", "template"),
)
# fmt: on


def _quantised(inputs: dict[str, Any]) -> dict[str, Any]:
    wanted = inputs.get("wanted")
    if isinstance(wanted, str):
        return {"wanted": hosts.service(model=ModelSource(id="tiny", quantization=wanted))}
    return inputs


NEVER_NO = {"os.virt", "sec.weights.atrest", "os.kernel.log.readable"}
"""The first two only tell; the third has a test of its own."""


@pytest.mark.parametrize("bad", [*BAD, *spoiled.BAD], ids=lambda bad: f"{bad[0]}-{bad[4][:20]}")
def test_a_bad_host_is_told_what_was_found_and_needed_and_the_fix(bad: Any) -> None:
    check, changed, status, inputs, found, needed = bad
    finding = answer(check, facts(**changed), **_quantised(inputs))
    assert finding.status == status
    assert found in finding.found
    assert needed in finding.needed
    assert finding.fix


def test_every_check_can_say_no() -> None:
    assert {check.id for check in CHECKS} - NEVER_NO == {bad[0] for bad in (*BAD, *spoiled.BAD)}
    assert len(CHECKS) >= 130
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_a_good_host_passes_or_skips_everything() -> None:
    said = {check.id: answer(check.id, facts()) for check in CHECKS}
    assert {f.check: f.found for f in said.values() if f.fix} == {}
    assert {f.status for f in said.values()} == {Status.PASS, Status.SKIP}


def test_a_good_host_with_a_card_passes_what_the_other_skips() -> None:
    wanted = hosts.service(
        gateway=TLS.gateway,
        engine=engine(tensor_parallel=3).engine,
        model=ModelSource(id="tiny", quantization="int8"),
    )
    said = facts(**GPU_HOST, tls=Tls(problem=None, until_s=AT_S + 90 * 86400))
    for check in CHECKS:
        plain, gpu = answer(check.id, facts()), answer(check.id, said, wanted=wanted)
        others = [answer(check.id, facts(**f), **i) for f, i in spoiled.GOOD_ONES]
        found = [finding.status for finding in (plain, gpu, *others)]
        assert Status.PASS in found, check.id
        assert set(found) <= {Status.PASS, Status.SKIP}, (check.id, gpu, others)


class _Recorder:
    """Facts that remember which of them were looked at."""

    def __init__(self, said: HostFacts) -> None:
        self.said, self.seen = said, set()

    def __getattr__(self, name: str) -> Any:
        if name in HostFacts.model_fields:
            self.seen.add(name)
        found = getattr(HostFacts, name, None)
        return found.fget(self) if isinstance(found, property) else getattr(self.said, name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_names_the_facts_that_it_reads(check: Any) -> None:
    samples = [({}, {}), *((f, _quantised(i)) for c, f, _, i, *_ in BAD if c == check.id)]
    samples += [(f, i) for c, f, _, i, *_ in spoiled.BAD if c == check.id]
    for changed, inputs in (*samples, *spoiled.GOOD_ONES):
        recorder = _Recorder(facts(**changed))
        answer(check.id, recorder, **inputs)  # type: ignore[arg-type]
        beside = {"host", "asked", "collected_s", "sources", "torch_cuda_devices"}
        assert recorder.seen - beside <= set(check.reads) | {"accelerators", "pci_devices", "user"}
    assert set(check.reads) <= set(HostFacts.model_fields)


DECIDED_BY_THE_SERVICE = {"sec.bind", "sec.gateway.tls", "sec.gateway.allow"}


def test_where_no_tool_answers_nothing_passes() -> None:
    for check in CHECKS:
        finding = answer(check.id, hosts.nothing_known())
        if check.id in DECIDED_BY_THE_SERVICE or not check.reads:
            continue
        assert finding.status in (Status.UNKNOWN, Status.SKIP), (check.id, finding)
        if finding.status == Status.UNKNOWN:
            assert finding.fix, check.id


def test_unknown_says_why_and_which_tool_to_mend() -> None:
    finding = answer("os.swap", facts(unknown=("swap_used_bytes",)))
    assert finding.status == Status.UNKNOWN
    assert finding.found == "the tool is missing"
    assert "/proc/made-up" in finding.fix


def test_no_limit_is_known_and_passes() -> None:
    assert answer("os.nofile", facts(open_files=None)).status == Status.PASS
    assert answer("os.nofile", facts(unknown=("open_files",))).status == Status.UNKNOWN


def test_an_unreadable_cgroup_is_no_proof_of_enough_memory() -> None:
    assert answer("os.ram", facts(unknown=("memory_limit_bytes",))).status == Status.UNKNOWN


def test_the_services_own_gateway_may_hold_the_port() -> None:
    own = NGINX.model_copy(update={"process": "envoy (pid 7)", "ours": True})
    finding = answer("net.ports.gateway", facts(listeners=(own,)))
    assert finding.status == Status.PASS
    assert "envoy (pid 7)" in finding.found


def test_another_address_on_the_same_port_is_no_conflict() -> None:
    other = NGINX.model_copy(update={"address": "10.0.0.5"})
    assert answer("net.ports.gateway", facts(listeners=(other,))).status == Status.PASS
    everywhere = gateway(host="0.0.0.0")
    assert answer("net.ports.gateway", facts(listeners=(other,)), wanted=everywhere).status == FAIL


def test_unmeasured_speeds_are_skipped_only_where_nobody_asked() -> None:
    quick = hosts.ASKED.model_copy(update={"measured": False})
    unknown = ("memory_read_bytes_per_s",)
    assert answer("memory.read.speed", facts(unknown=unknown)).status == Status.UNKNOWN
    said = facts(unknown=unknown, asked=quick)
    assert answer("memory.read.speed", said).status == Status.SKIP


def test_speed_is_judged_by_the_objective() -> None:
    slow = facts(memory_read_bytes_per_s=1e9)  # 268,435,456 B / 1e9 B/s = 268 ms a token
    patient = hosts.service(objectives=Objectives().model_copy(update={"tpot_p95_s": 0.3}))
    assert answer("memory.read.speed", slow).status == WARN
    assert answer("memory.read.speed", slow, wanted=patient).status == Status.PASS


def test_a_bundle_about_another_model_knows_nothing_of_this_one() -> None:
    wanted = hosts.service(model=ModelSource(id="other"))
    for check in ("sto.model.present", "sto.model.index", "os.ram", "rt.model.arch"):
        assert answer(check, facts(), wanted=wanted).status == Status.UNKNOWN


def test_a_log_for_root_alone_is_named_and_keeps_its_checks_unknown() -> None:
    reason = "the kernel's log is not readable for this user: dmesg: Operation not permitted"
    said = facts(unknown=("kernel_events",))
    sources = [s.model_copy(update={"problem": reason}) if s.fact == "kernel_events" else s
               for s in said.sources]  # fmt: skip
    said = said.model_copy(update={"sources": tuple(sources)})
    finding = answer("os.kernel.log.readable", said)
    assert finding.status == WARN
    assert "usermod -aG systemd-journal llm" in finding.fix
    assert answer("os.oom.recent", said).status == Status.UNKNOWN
    assert answer("os.oom.recent", said).found == reason


def test_events_older_than_a_day_are_over() -> None:
    old = spoiled.event("xid", "Xid 95", code=95, age_s=90_000)
    assert answer("gpu.xid.window", facts(**spoiled.H100, kernel_events=old)).status == Status.PASS


def test_cards_of_which_a_tool_gives_no_address_are_counted() -> None:
    on_bus = spoiled.pci(2, "hygon", "hycu")
    bare = spoiled.cards(2, vendor="hygon", name="K100", compute_capability=None)
    nameless = tuple(card.model_copy(update={"pci_address": None}) for card in bare)
    said = {"pci_devices": on_bus, "card_states": ()}
    assert answer("gpu.visible.count", facts(**said, accelerators=nameless)).status == Status.PASS
    assert answer("gpu.visible.count", facts(**said, accelerators=nameless[:1])).status == FAIL


def test_a_fault_with_a_check_of_its_own_is_not_told_twice() -> None:
    lost = "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost."
    said = {**spoiled.H100, "accelerators": spoiled.cards(1),
            "accelerator_errors": (lost, "nvidia-smi ended with exit code 15")}  # fmt: skip
    assert answer("gpu.visible.count", facts(**said)).status == FAIL
    assert answer("gpu.smi.responsive", facts(**said)).status == Status.PASS
    dead = {**said, "accelerators": (), "accelerator_errors": ("Driver/library version mismatch",)}
    assert answer("gpu.smi.responsive", facts(**dead)).status == FAIL
    assert answer("gpu.visible.count", facts(**dead)).status == Status.SKIP
    stolen = {**said, "pci_devices": spoiled.pci(2, driver="nouveau"), "device_nodes": ()}
    for check in ("gpu.visible.count", "drv.uvm"):
        assert answer(check, facts(**stolen)).status == Status.SKIP


def test_port_blocks_may_lie_above_the_ephemeral_range() -> None:
    places = hosts.inventory(ports=Ports(first=61000))
    assert answer("net.ports.ephemeral", facts(), places=places).status == Status.PASS


def _quick(*untried: str, **changed: Any) -> HostFacts:
    """A good host that was asked with `--quick`."""
    said = facts(unknown=untried, torch_cuda_version="12.8", **changed)
    sources = tuple(
        source.model_copy(update={"problem": UNTRIED}) if source.fact in untried else source
        for source in said.sources
    )
    return said.model_copy(update={"sources": sources})


def test_quick_skips_what_only_an_import_tells_and_blocks_nothing() -> None:
    found = tuple(entry.model_copy(update={"duration_s": None}) for entry in IMPORTS)
    said = _quick("torch_cuda_devices", "architecture_known", imports=found)
    judged = hosts.report(said)
    answers = {finding.check: finding for finding in judged.findings}
    for name in ("rt.engine.import", "rt.model.arch", "gpu.device"):
        assert answers[name].status == Status.SKIP
        assert "not tried: --quick" in answers[name].found
    assert judged.blocked_by == ()


def test_quick_counts_a_card_as_used_where_torch_is_built_for_it() -> None:
    said = _quick("torch_cuda_devices", accelerators=(CARD,))
    assert answer("cpu.compute.speed", said).found == "the engine runs on CUDA"
    without = said.model_copy(update={"torch_cuda_version": None})
    assert answer("cpu.compute.speed", without).found != "the engine runs on CUDA"
    no_card = said.model_copy(update={"accelerators": ()})
    assert answer("cpu.compute.speed", no_card).found != "the engine runs on CUDA"
