"""Plans for clusters: places, promises, expectations, figures, files, refusals."""

import re

import pytest

from llmdeploy.document import dump, parse
from llmdeploy.errors import InputError, Refused
from llmdeploy.plan import Plan, files
from llmdeploy.plan.report import table
from llmdeploy.service import Service

from .clusters import TWO_BY_FOUR, plan
from .stand_ins import DEEPSEEK_671B, LLAMA_8B, LLAMA_70B, QWEN_14B, service

ONE_CARD = "hosts: [{name: gpu, devices: [{device: RTX 4090}]}]"
EIGHT_H100 = "hosts: [{name: gpu, devices: [{device: H100 SXM, count: 8}]}]"
TWO_BY_H200 = """
hosts: [{name: gpu, count: 2, devices: [{device: H200, count: 8}]}]
network: infiniband-400g
"""
MADE = {
    "documents": plan(),
    "one_card": plan(LLAMA_8B, ONE_CARD, service(workload={"requests_per_day": 20_000})),
    "h100": plan(LLAMA_70B, EIGHT_H100),
    "moe": plan(DEEPSEEK_671B, TWO_BY_H200),
    "sglang": plan(QWEN_14B, TWO_BY_FOUR, service(engine={"kind": "sglang"})),
    "stages": plan(
        LLAMA_70B, TWO_BY_FOUR,
        service(
            workload={"requests_per_day": 5_000}, model={"quantization": "none"},
            objectives={"tpot_p95_s": 1.0, "ttft_p95_s": 30.0},
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_a_plan_loads_again_and_is_the_same_bytes(name):
    made = MADE[name]
    assert parse(dump(made), Plan, place="plan.yaml") == made
    assert made.cluster is not None


@pytest.mark.parametrize("name", MADE)
def test_no_device_has_two_replicas(name):
    taken = [
        (member.host, number)
        for replica in MADE[name].replicas
        for member in replica.members or ()
        for number in member.device_ids
    ]
    assert len(taken) == len(set(taken))
    assert len(taken) == sum(
        part.devices_per_replica * (part.replicas + part.spares)
        for part in MADE[name].cluster.parts
    )


@pytest.mark.parametrize("name", MADE)
def test_what_is_promised_is_of_the_replicas_that_carry_the_peak(name):
    made = MADE[name]
    assert made.promises.max_concurrency == sum(
        part.max_num_seqs * part.replicas for part in made.cluster.parts
    )
    assert made.promises.kv_cache_tokens == min(p.kv_cache_tokens for p in made.cluster.parts)
    assert all(expected.kept for expected in made.cluster.expected)
    assert sum(choice.chosen for choice in made.cluster.choices) == 1


@pytest.mark.parametrize("name", MADE)
def test_sums_of_figures_can_be_computed_as_they_stand(name):
    checked = 0
    for figure in MADE[name].figures:
        words, _, value = figure.formula.rpartition(" = ")
        assert float(value) == pytest.approx(figure.value)
        total = words.rpartition(": ")[2].replace(" x ", " * ")
        if re.fullmatch(r"(floor)?[0-9eE.()*/+\- ]+", total) and any(c in total for c in "*/+-"):
            computed = eval(total, {"floor": int})  # of this test's own plans
            assert computed == pytest.approx(figure.value, rel=2e-3), figure.formula
            checked += 1
    assert checked >= 8


def test_the_documents_three_formulas_come_first():
    names = [figure.name for figure in MADE["documents"].figures]
    assert names[:3] == ["device_memory", "allowed_memory", "weights_estimate"]
    assert names.index("kv_budget_estimate") < names.index("weights")
    assert names.index("max_batch_estimate") < names.index("weights")


def test_a_spare_is_on_another_host_and_marked():
    *_, spare = MADE["documents"].replicas
    assert spare.spare
    assert spare.host != MADE["documents"].replicas[0].host
    text = files(MADE["documents"])[f"launch/{spare.host}/{spare.name}.txt"]
    assert text.startswith("# spare:")


def test_every_host_of_a_replica_has_its_own_launch_file():
    made = MADE["stages"]
    replica = made.replicas[0]
    assert len(replica.members) == 2
    texts = [files(made)[f"launch/{member.host}/r0.txt"] for member in replica.members]
    assert ["--headless" in text for text in texts] == [False, True]
    assert all("--master-addr {gpu-" in text for text in texts)
    assert all("--master-port {group_port}" in text for text in texts)
    assert all("NCCL_SOCKET_IFNAME={interface}" in text.replace("==", "=") for text in texts)


@pytest.mark.parametrize("name", MADE)
def test_launch_files_name_no_real_port_and_leave_holes_unquoted(name):
    for path, text in files(MADE[name]).items():
        if path.endswith(".txt"):
            assert re.search(r"--port \{port\}", text)
            assert "'{" not in text


def test_the_asked_engine_is_planned_and_the_others_are_beside_it():
    made = MADE["sglang"]
    assert {replica.serve.engine for replica in made.replicas} == {"sglang"}
    engines = {other.engine: other.fits for other in made.cluster.alternatives}
    assert engines == {"vllm": True, "embedded": True}
    others = {other.engine: other.fits for other in MADE["moe"].cluster.alternatives}
    assert others == {"sglang": True, "embedded": False}


def test_one_device_says_why_it_is_enough():
    notes = MADE["one_card"].notes
    assert notes[0].startswith("One device is enough for a replica: weights take 15.0 GiB")
    assert "There is no spare replica: the loss of one device stops the service." in notes
    assert MADE["one_card"].cluster.coresidency.kind == "not possible"


def test_old_and_new_release_are_side_by_side_on_free_devices_else_rolling():
    assert MADE["documents"].cluster.coresidency.kind == "side by side"
    rolling = MADE["moe"].cluster.coresidency
    assert rolling.kind in ("rolling", "side by side")
    small = plan(LLAMA_8B, ONE_CARD.replace("4090}", "4090, count: 2}"))
    assert small.cluster.coresidency.kind == "rolling"
    assert "the spare goes first" in small.cluster.coresidency.words


def test_costs_follow_prices_and_are_null_without():
    cost = MADE["documents"].cluster.cost
    devices = int(next(f.value for f in MADE["documents"].figures if f.name == "devices"))
    assert cost.price_per_hour == pytest.approx(0.4 * devices)
    tokens = 100_000 * 128
    assert cost.price_per_million_output_tokens == pytest.approx(
        0.4 * devices * 24 / tokens * 1e6, rel=1e-3
    )
    assert cost.energy_per_day_kwh == pytest.approx(450 * devices * 24 / 1000)
    assert MADE["h100"].cluster.cost.price_per_hour is None


@pytest.mark.parametrize("name", MADE)
def test_the_table_is_readable_and_complete(name):
    text = table(MADE[name])
    assert max(len(line) for line in text.splitlines()) <= 140
    for word in ("layout", "replicas", "against the objectives", "cost", "rejected", "figures"):
        assert word in text


def test_the_table_of_the_documents_case_is_written_whole(check_golden):
    check_golden("plan/cluster.txt", table(MADE["documents"]))


def refused(config: dict, text: str, wanted: Service) -> Refused:
    with pytest.raises(Refused) as caught:
        plan(config, text, wanted)
    return caught.value


@pytest.mark.parametrize(
    ("config", "parts", "what", "fix"),
    [
        (LLAMA_8B, {"model": {"quantization": "none"}, "engine": {"max_model_len": 131072}},
         "memory-fits", "set engine.max_model_len to "),
        (LLAMA_8B, {"model": {"quantization": "none"}, "engine": {"max_model_len": 40960}},
         "memory-fits", "set engine.kv_cache_dtype to fp8"),
        (QWEN_14B, {"model": {"quantization": "none"}}, "weights-fit",
         "set model.quantization to fp8: 1 x rtx4090 fp8 tp1"),
        (QWEN_14B, {"model": {"quantization": "none"}}, "weights-fit",
         "set model.quantization to awq (needs a checkpoint in that format)"),
        (LLAMA_8B, {"workload": {"requests_per_day": 400_000}}, "peak", "add "),
        (LLAMA_8B, {"workload": {"requests_per_day": 900_000}}, "peak",
         "set workload.requests_per_day to "),
        (LLAMA_8B, {"objectives": {"ttft_p95_s": 0.01}}, "ttft", "set objectives.ttft_p95 to "),
        (LLAMA_8B, {"engine": {"tensor_parallel": 3}}, "",
         "leave engine.tensor_parallel and pipeline_parallel out"),
        (LLAMA_8B, {"engine": {"max_num_seqs": 1000}}, "kv-room", "leave engine.max_num_seqs out"),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_what_would_with_numbers(config, parts, what, fix):
    few = {"workload": {"requests_per_day": 20_000}} | parts
    error = refused(config, ONE_CARD, service(**few))
    assert f"({what}" in str(error)
    assert fix in error.fix
    assert "p95 TTFT" in error.fix
    assert error.exit_code == 3


def test_changes_are_joined_where_none_does_alone_and_hopeless_says_sizes():
    none = service(model={"quantization": "none"}, workload={"requests_per_day": 2_000})
    text = "hosts: [{name: gpu, devices: [{device: RTX 4090, count: 2}]}]"
    assert refused(LLAMA_70B, text, none).fix.startswith("set together model.quantization to awq")
    error = refused(DEEPSEEK_671B, "hosts: [{name: a, devices: [{device: RTX 4060}]}]", service())
    assert "use a smaller model or more memory: weights take" in error.fix


@pytest.mark.parametrize("length", [262144, 100])
def test_lengths_that_contradict_the_model_or_the_workload_are_bad_input(length):
    with pytest.raises(InputError, match="engine/max_model_len"):
        plan(LLAMA_8B, ONE_CARD, service(engine={"max_model_len": length}))


def test_another_format_than_the_checkpoints_is_bad_input():
    for asked in ("awq", "none"):
        with pytest.raises(InputError, match="weights are fp8_block already"):
            plan(DEEPSEEK_671B, TWO_BY_H200, service(model={"quantization": asked}))
    assert plan(DEEPSEEK_671B, TWO_BY_H200, service(model={"quantization": "fp8"})).cluster


MIXED = """
hosts:
  - {name: small, devices: [{device: RTX 4090, count: 4}, {device: L40S, count: 1}]}
  - {name: large, devices: [{device: L40S, count: 2}]}
network: ethernet-25g
"""


def test_two_kinds_of_devices_carry_one_service_in_two_parts():
    day = 100_000
    while True:
        made = plan(LLAMA_8B, MIXED, service(workload={"requests_per_day": day}))
        if len(made.cluster.parts) == 2:
            break
        day = int(day * 1.1)
    assert {part.device for part in made.cluster.parts} == {"rtx4090", "l40s"}
    assert {replica.part for replica in made.replicas} == {0, 1}
    assert "weights_2" in [figure.name for figure in made.figures]
    assert any(note.startswith("No kind of device carries the peak alone") for note in made.notes)
    taken = [(m.host, n) for r in made.replicas for m in r.members or () for n in m.device_ids]
    assert len(taken) == len(set(taken))
    assert max(n for host, n in taken if host == "small") <= 4
    assert parse(dump(made), Plan, place="plan.yaml") == made
    assert files(made)
    assert table(made)


def test_a_version_newer_than_any_known_is_planned_with_wider_intervals_and_says_so():
    asked = service(engine={"version": "7.1.0", "max_model_len": 4096})
    made = plan(LLAMA_8B, ONE_CARD, asked)
    assert any("vllm 7.1.0 is newer than 0.33.0" in note for note in made.notes)
    assert made.replicas[0].serve.group is not None
    assert made.replicas[0].serve.group.version == "7.1.0"


def test_a_version_that_names_no_release_is_bad_input():
    with pytest.raises(InputError, match="engine/version: found 'banana'"):
        plan(LLAMA_8B, ONE_CARD, service(engine={"version": "banana", "max_model_len": 4096}))


def test_far_too_much_traffic_names_what_would_be_carried():
    load = {"requests_per_day": 10**12, "peak_factor": 1000}
    error = refused(LLAMA_8B, ONE_CARD, service(workload=load))
    assert error.fix.startswith("set workload.requests_per_day to ")


def test_one_card_that_is_too_small_names_a_larger_host_and_more_hosts():
    text = "hosts: [{name: gpu, devices: [{device: H100, count: 1}]}]"
    none = service(model={"quantization": "none"}, workload={"requests_per_day": 2_000})
    error = refused(LLAMA_70B, text, none)
    assert "x h100-sxm into one host" in error.fix
    assert "joined by a network that cluster.yaml names (ethernet-25g tried)" in error.fix
    assert "weights take 131" in str(error)


def test_more_replicas_on_a_head_than_its_block_has_ports_for_are_told():
    text = "hosts: [{name: gpu, devices: [{device: RTX 4090, count: 8}]}]"
    made = plan(LLAMA_8B, text, service(workload={"requests_per_day": 900_000}))
    heads = [replica.host for replica in made.replicas]
    told = [note for note in made.notes if "ports.block_size" in note]
    assert len(told) == (1 if 3 * len(heads) > 8 else 0)
    assert len(heads) > 2
