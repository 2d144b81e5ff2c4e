"""Command lines of vLLM and SGLang, whole, by version and by place in the group."""

import pytest

from llmdeploy import backends
from llmdeploy.backends import sglang, vllm
from llmdeploy.backends.group import at_least
from llmdeploy.backends.spec import GroupSpec, Place, Seat, ServeSpec

GROUP = GroupSpec(
    version=vllm.NEWEST, vendor="nvidia", hosts=1, pipeline_parallel=1, expert_parallel=False,
    attention_data_parallel=False, kv_cache_dtype="auto", memory_ratio=0.8, start_timeout_s=300.0,
)  # fmt: skip
SERVE = ServeSpec(
    engine="vllm", served_name="chat", device="cuda", dtype="bfloat16", quantization="none",
    tensor_parallel=4, data_parallel=1, threads_per_worker=1, max_model_len=8192, max_num_seqs=128,
    max_num_batched_tokens=2048, max_queue=64, kv_cache_tokens=100_000, batch_window_s=0.0,
    request_timeout_s=120.0, drain_timeout_s=30.0, log_level="info", group=GROUP,
)  # fmt: skip


def serve(engine: str, *, group: dict | None = None, **changes) -> ServeSpec:
    version = {"vllm": vllm.NEWEST, "sglang": sglang.NEWEST}[engine]
    members = GROUP.model_copy(update={"version": version} | (group or {}))
    return SERVE.model_copy(update={"engine": engine, "group": members} | changes)


def place(position: int = 0, devices: tuple[int, ...] = (0, 1, 2, 3)) -> Place:
    seat = Seat(
        position=position, head_address="10.0.0.1", group_port=21001, interface="eth1",
        device_ids=devices,
    )  # fmt: skip
    return Place(
        python="/opt/engine/bin/python", model_folder="/srv/models/chat",
        address=f"10.0.0.{position + 1}", port=21000, cores=(), seat=seat,
    )  # fmt: skip


CASES = {
    "one_host": (serve("vllm"), place()),
    "head": (serve("vllm", group={"hosts": 2, "pipeline_parallel": 2}), place()),
    "follower": (serve("vllm", group={"hosts": 2, "pipeline_parallel": 2}), place(1)),
    "old_with_ray": (
        serve("vllm", group={"hosts": 2, "pipeline_parallel": 2, "version": "0.10.2"}),
        place(),
    ),
    "experts_and_data_parallel": (
        serve(
            "vllm", tensor_parallel=1, data_parallel=8, max_num_seqs=1024,
            group={"expert_parallel": True, "attention_data_parallel": True},
        ),
        place(devices=tuple(range(8))),
    ),
    "fp8_while_loading": (
        serve("vllm", quantization="fp8", group={"kv_cache_dtype": "fp8"}), place()
    ),
    "processors": (
        serve("vllm", device="cpu", group={"vendor": "other", "hosts": 2, "kv_cache_bytes": 2**30}),
        place(1, devices=(0,)),
    ),
    "ascend": (serve("vllm", device="npu", group={"vendor": "ascend", "hosts": 2}), place(1)),
}  # fmt: skip
GROUPS = {
    f"{engine}_{name}": (
        spec.model_copy(
            update={
                "engine": engine,
                "group": spec.group.model_copy(
                    update={} if engine == "vllm" else {"version": sglang.NEWEST}
                ),
            }
        ),
        where,
    )
    for engine in ("vllm", "sglang")
    for name, (spec, where) in CASES.items()
    if not (engine == "sglang" and name in ("old_with_ray", "processors"))
}


@pytest.mark.parametrize("name", GROUPS)
def test_the_command_is_written_whole(name, check_golden):
    command = backends.command(*GROUPS[name])
    lines = [f"{key}={value}" for key, value in command.env]
    check_golden(f"backends/{name}.txt", "\n".join([*lines, *command.argv]) + "\n")


@pytest.mark.parametrize("name", GROUPS)
def test_it_binds_to_the_data_address_and_goes_nowhere_else(name):
    spec, where = GROUPS[name]
    command = backends.command(spec, where)
    assert command.argv[command.argv.index("--host") + 1] == where.address
    assert "0.0.0.0" not in command.argv
    assert dict(command.env)["HF_HUB_OFFLINE"] == "1"
    assert not [name for name, _ in command.env if "KEY" in name]


def test_ranks_of_a_sglang_group_differ_in_nothing_but_rank_and_address():
    spec = serve("sglang", group={"hosts": 2, "pipeline_parallel": 2})
    head, follower = (backends.command(spec, place(n)).argv for n in (0, 1))
    changed = {option for option, a, b in zip(("", *head), head, follower, strict=False) if a != b}
    assert changed == {"--host", "--node-rank"}


def test_only_followers_of_vllm_are_headless():
    spec = serve("vllm", group={"hosts": 2, "pipeline_parallel": 2})
    assert "--headless" not in backends.command(spec, place(0)).argv
    assert "--headless" in backends.command(spec, place(1)).argv


def test_flags_follow_the_version():
    new, old = (
        backends.command(serve("vllm", group={"version": version}), place()).argv
        for version in ("0.33.0", "0.11.2")
    )
    assert {"--shutdown-timeout", "--max-num-queued-reqs"} <= set(new)
    assert not {"--shutdown-timeout", "--max-num-queued-reqs"} & set(old)
    older = serve(
        "sglang",
        data_parallel=4,
        tensor_parallel=1,
        group={"version": "0.5.2", "attention_data_parallel": True},
    )
    assert "--enable-dp-attention" in backends.command(older, place()).argv
    newer = older.model_copy(update={"group": older.group.model_copy(update={"version": "0.6.0"})})
    assert "--attn-dp-size" in backends.command(newer, place()).argv


@pytest.mark.parametrize(
    ("version", "found"),
    [("0.12.0", True), ("v0.12.1rc3.dev2+gabc", True), ("0.11.9", False), ("main", True)],
)
def test_versions_compare_as_numbers(version, found):
    assert at_least(version, 0, 12, 0) is found
