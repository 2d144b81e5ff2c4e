"""Plans made from facts and a model, and what is refused with what would fit."""

import dataclasses

import pytest

from llmdeploy.document import dump, parse
from llmdeploy.errors import InputError, LlmDeployError, Refused
from llmdeploy.plan import Plan, make
from llmdeploy.plan.device import choose_device
from llmdeploy.plan.layout import lay_out
from llmdeploy.plan.refusal import changed

from .cases import EIGHT_BILLION, GIB, H100, INVENTORY, MANIFEST, MODEL, bundle, facts, service


def plan(model=MODEL, *, parts=None, **facts) -> Plan:
    return make(service(**(parts or {})), INVENTORY, bundle(**facts), model)


def refusal(model=MODEL, *, parts=None, **facts) -> LlmDeployError:
    with pytest.raises(LlmDeployError) as error:
        plan(model, parts=parts, **facts)
    return error.value


def cores(count):
    return {"cpu_cores": count, "cpu_ids": tuple(range(count))}


def big(**changes):
    return dataclasses.replace(MODEL, manifest=EIGHT_BILLION.model_copy(update=changes))


def figure(made: Plan, name: str) -> float:
    return next(f.value for f in made.figures if f.name == name)


def test_two_cores_give_each_release_one_worker_of_one_thread():
    made = plan()
    serve = made.replicas[0].serve
    assert (serve.data_parallel, serve.threads_per_worker, serve.device) == (1, 1, "cpu")
    assert made.core_slots == ((0,), (1,))


def test_the_documents_formulas_stand_first_and_exactly():
    made = plan()
    names = [f.name for f in made.figures][:8]
    assert names == [
        "device_memory", "allowed_memory", "weights_estimate", "overhead_estimate",
        "kv_per_token", "kv_per_request", "kv_budget_estimate", "max_batch_estimate",
    ]  # fmt: skip
    allowed = 24 * GIB // 2 * 8 // 10
    overhead = (560 + 160) * 2**20
    assert figure(made, "allowed_memory") == allowed
    assert figure(made, "weights_estimate") == 134_515_008 * 2
    assert figure(made, "kv_per_token") == 23_040
    assert figure(made, "kv_per_request") == (128 + 64) * 23_040
    budget = allowed - 134_515_008 * 2 - overhead
    assert figure(made, "kv_budget_estimate") == budget
    assert figure(made, "max_batch_estimate") == budget // (192 * 23_040)


def test_the_plan_promises_what_the_engine_is_told():
    made = plan()
    serve, promises = made.replicas[0].serve, made.promises
    assert promises.kv_cache_tokens == serve.kv_cache_tokens
    assert promises.max_concurrency == serve.max_num_seqs
    assert serve.kv_cache_tokens % (32 * serve.data_parallel) == 0
    assert promises.output_tokens_per_s == figure(made, "predicted_throughput")


def test_max_batch_is_the_smaller_of_memory_and_compute():
    roomy = plan()
    assert figure(roomy, "max_num_seqs") == figure(roomy, "max_batch_compute")
    assert figure(roomy, "max_batch_memory") > figure(roomy, "max_batch_compute")
    tight = plan(parts={"engine": {"max_model_len": 512}}, memory_total_bytes=int(4.2 * GIB))
    assert figure(tight, "max_num_seqs") == figure(tight, "max_batch_memory")
    assert figure(tight, "max_batch_memory") < figure(tight, "max_batch_compute")


def test_the_promised_time_per_token_limits_the_batch():
    made = plan(parts={"objectives": {"tpot_p95_s": 0.1}})
    assert figure(made, "tpot") <= 0.1
    assert 1 <= made.promises.max_concurrency < 32


@pytest.mark.parametrize(
    ("requests_per_day", "workers", "threads"), [(20_000, 1, 8), (150_000, 2, 4), (250_000, 4, 2)]
)
def test_eight_cores_are_one_worker_until_the_peak_needs_more(requests_per_day, workers, threads):
    parts = {"workload": {"requests_per_day": requests_per_day}}
    made = plan(parts=parts, **cores(16), memory_total_bytes=64 * GIB)
    serve = made.replicas[0].serve
    assert (serve.data_parallel, serve.threads_per_worker) == (workers, threads)
    assert made.core_slots == (tuple(range(8)), tuple(range(8, 16)))
    assert serve.max_num_seqs % workers == 0


AMX = {"core_matmul_flops_per_s": 1.2e12, "memory_read_bytes_per_s": 26e9}
ZEN_4 = {"core_matmul_flops_per_s": 206e9, "memory_read_bytes_per_s": 40e9}


@pytest.mark.parametrize(
    ("rates", "at_once", "workers"),
    [(ZEN_4, 1, 1), (ZEN_4, 32, 2), (AMX, 1, 1), (AMX, 8, 1), (AMX, 16, 1), (AMX, 32, 2)],
)
def test_two_cores_are_cut_as_was_measured_to_be_fastest(rates, at_once, workers):
    # the peak is so high that all of `at_once` run, and the promise so low that none is too slow
    parts = {
        "engine": {"max_num_seqs": at_once},
        "release": {"side_by_side": False},
        "workload": {"requests_per_day": 1_000_000_000},
        "objectives": {"tpot_p95_s": 1.0},
    }
    wanted = service(**parts)
    device = choose_device(facts(**rates), wanted)
    assert lay_out(wanted, device, MANIFEST).workers == workers


def test_fewer_workers_share_the_cores_where_not_every_copy_fits():
    made = plan(**cores(16), memory_total_bytes=8 * GIB)
    serve = made.replicas[0].serve
    assert serve.data_parallel < 8
    assert serve.data_parallel * serve.threads_per_worker == 8


def test_one_request_at_a_time_is_one_worker_with_all_threads():
    parts = {"engine": {"max_num_seqs": 1}, "workload": {"requests_per_day": 1000}}
    serve = plan(parts=parts, **cores(8)).replicas[0].serve
    assert (serve.data_parallel, serve.threads_per_worker, serve.max_num_seqs) == (1, 4, 1)


def test_a_checkpoint_keeps_its_type_unless_another_is_asked_for():
    assert plan().replicas[0].serve.dtype == "bfloat16"
    made = plan(parts={"model": {"dtype": "float32"}})
    assert made.replicas[0].serve.dtype == "float32"
    assert figure(made, "kv_per_token") == 2 * 23_040


@pytest.mark.parametrize(
    ("flags", "held"),
    [(("avx2",), "float32"), (("avx2", "avx512f"), "bfloat16"), (None, "bfloat16")],
)
def test_bf16_is_held_in_float32_where_the_processor_is_slower_with_it(flags, held):
    made = plan(cpu_flags=flags)
    assert made.replicas[0].serve.dtype == held
    assert any("16-bit products are slower" in note for note in made.notes) == (held == "float32")
    asked = plan(parts={"model": {"dtype": "bfloat16"}}, cpu_flags=flags)
    assert asked.replicas[0].serve.dtype == "bfloat16"


@pytest.mark.parametrize("format", ["int8", "nf4"])
def test_quantised_weights_are_planned_where_bitsandbytes_has_them(format):
    made = plan(parts={"model": {"quantization": format}})
    assert made.replicas[0].serve.quantization == format
    assert figure(made, "weights") < 269_030_016


def test_one_device_is_enough_is_said_with_its_figures():
    made = plan()
    assert made.notes[0].startswith("One device is enough: smollm2")
    assert "44.44 output tokens/s" in made.notes[0]  # 20,000 / 86,400 x 3 x 64 / 3 x 3


def test_assumed_speeds_are_said_and_measured_ones_are_derived_from():
    assert any(note.startswith("Speeds are assumed") for note in plan().notes)
    measured = plan(memory_read_bytes_per_s=26e9, core_matmul_flops_per_s=206e9)
    assert not any("assumed" in note for note in measured.notes)
    origins = {f.name: f.origin for f in measured.figures}
    assert (origins["memory_read_rate"], origins["tpot"]) == ("measured", "derived")


def test_the_same_input_gives_the_same_bytes_whatever_is_free_right_now():
    first = plan(memory_available_bytes=20 * GIB, load_1min=0.1)
    second = plan(memory_available_bytes=3 * GIB, load_1min=9.0)
    assert dump(first) == dump(second)
    assert first.id == second.id


def test_a_written_plan_is_read_back_the_same():
    made = plan(parts={"engine": {"batch_window_s": 0.002}})
    assert parse(dump(made), Plan, place="plan.yaml") == made


def test_a_change_of_the_service_is_another_plan():
    assert plan().id != plan(parts={"engine": {"max_num_batched_tokens": 256}}).id


def test_a_drill_reaches_the_engine():
    wanted = service()
    engine = wanted.engine.model_validate_json('{"drill": {"error_ratio": "5%"}}')
    made = make(wanted.model_copy(update={"engine": engine}), INVENTORY, bundle(), MODEL)
    assert made.replicas[0].serve.drill.error_ratio == 0.05


def test_a_card_takes_all_the_kv_it_can_use_and_says_it_is_not_calibrated():
    made = plan(accelerators=(H100,), torch_cuda_devices=1)
    serve = made.replicas[0].serve
    assert (serve.device, serve.data_parallel) == ("cuda", 1)
    assert serve.kv_cache_tokens == serve.max_num_seqs * 2048
    assert any("not calibrated on CUDA" in note for note in made.notes)


def test_three_ranks_split_smollm2_and_hold_its_weights_once():
    made = plan(parts={"engine": {"tensor_parallel": 3}}, **cores(6))
    serve = made.replicas[0].serve
    assert (serve.tensor_parallel, serve.data_parallel, serve.threads_per_worker) == (3, 1, 1)
    assert figure(made, "weights") == 269_030_016


def test_ranks_that_do_not_divide_the_heads_are_refused_with_those_that_do():
    error = refusal(parts={"engine": {"tensor_parallel": 2}}, **cores(4))
    assert isinstance(error, Refused)
    assert "2 does not divide 9 attention heads and 3 KV heads" in str(error)
    assert error.fix == "set engine.tensor_parallel to 1 or 3"


def test_more_ranks_than_cores_are_refused():
    error = refusal(parts={"engine": {"tensor_parallel": 3}}, **cores(4))
    assert "3 ranks need a core each, a release has 2" in str(error)
    assert error.fix == "set engine.tensor_parallel to 1"


def test_quantised_ranks_are_refused():
    parts = {"engine": {"tensor_parallel": 3}, "model": {"quantization": "nf4"}}
    assert "cannot split bitsandbytes weights (nf4)" in str(refusal(parts=parts, **cores(6)))


def test_a_format_without_support_is_refused():
    error = refusal(parts={"model": {"quantization": "int8"}}, bitsandbytes_devices=None)
    assert isinstance(error, Refused)
    assert "int8 needs bitsandbytes on cpu, found support for no format" in str(error)


def test_a_longer_context_than_the_models_is_bad_input():
    error = refusal(parts={"engine": {"max_model_len": 65536}})
    assert isinstance(error, InputError)
    assert "found 65536 tokens, needed at most the model's 8192" in str(error)


def test_a_context_shorter_than_the_mean_request_is_bad_input():
    error = refusal(parts={"engine": {"max_model_len": 128}})
    assert isinstance(error, InputError)
    assert "needed the workload's mean of 192" in str(error)


def test_a_model_that_leaves_no_room_names_every_change_that_would_fit():
    parts = {"objectives": {"tpot_p95_s": 10.0}, "workload": {"requests_per_day": 100}}
    error = refusal(big(), parts=parts, memory_total_bytes=48 * GIB)
    assert isinstance(error, Refused)
    assert "needs 29.4 GiB" in str(error)  # 2 x 14.0 GiB, processes, workspace, 0.25 GiB of KV
    assert "a release may use 19.2 GiB" in str(error)
    for change in ("quantization to int8", "quantization to nf4", "side_by_side to false"):
        assert change in error.fix
    for update in ({"quantization": "int8"}, {"quantization": "nf4"}):
        fits = plan(big(), parts={**parts, "model": update}, memory_total_bytes=48 * GIB)
        assert fits.replicas[0].serve.quantization == update["quantization"]


def test_the_longest_context_that_fits_is_named_and_does_fit():
    def asked(length):
        return {
            "engine": {"max_model_len": length, "max_num_seqs": 1},
            "workload": {"requests_per_day": 1000},
        }

    memory = int(4.2 * GIB)
    error = refusal(parts=asked(8192), memory_total_bytes=memory)
    assert "with one request of 8192 tokens needs" in str(error)
    longest = int(error.fix.removeprefix("set engine.max_model_len to ").split(":")[0])
    made = plan(parts=asked(longest), memory_total_bytes=memory)
    assert made.promises.kv_cache_tokens >= longest
    refusal(parts=asked(longest + 32), memory_total_bytes=memory)


def test_a_batch_whose_logits_leave_no_room_is_told_to_be_left_out():
    parts = {"engine": {"max_num_seqs": 1024, "max_model_len": 512}}
    error = refusal(parts=parts, memory_total_bytes=int(4.5 * GIB))
    assert "leave engine.max_num_seqs out (31 then): needs" in error.fix
    made = plan(parts={"engine": {"max_model_len": 512}}, memory_total_bytes=int(4.5 * GIB))
    assert made.promises.max_concurrency == 31


def test_a_host_that_nothing_helps_is_told_what_is_needed():
    error = refusal(memory_total_bytes=GIB, bitsandbytes_devices=None)
    assert "use a host where a release may use" in error.fix


def test_more_requests_at_once_than_the_kv_holds_are_refused_with_the_number_that_fits():
    parts = {"engine": {"max_num_seqs": 1024, "max_model_len": 512}}
    error = refusal(parts=parts, memory_total_bytes=6 * GIB)
    fits = int(error.fix.removeprefix("set engine.max_num_seqs to ").split()[0])
    assert f"room for {fits}" in str(error)
    smaller = {"engine": {"max_num_seqs": fits, "max_model_len": 512}}
    made = plan(parts=smaller, memory_total_bytes=6 * GIB)
    assert made.promises.max_concurrency == fits


def test_a_model_too_slow_for_its_promise_is_refused_with_both_times():
    parts = {"workload": {"requests_per_day": 100}}
    error = refusal(big(), parts=parts, memory_total_bytes=128 * GIB)
    assert "objectives/tpot_p95 is 0.2 s" in str(error)
    slower = float(error.fix.split("objectives.tpot_p95 to ")[1].split("s ")[0])
    relaxed = {**parts, "objectives": {"tpot_p95_s": slower}}
    assert plan(big(), parts=relaxed, memory_total_bytes=128 * GIB).replicas


def test_a_peak_that_needs_more_replicas_is_refused_and_each_change_carries_it():
    busy = {"workload": {"requests_per_day": 100_000}}
    error = refusal(parts=busy)
    assert isinstance(error, Refused)
    assert "the peak needs 222.2 output tokens/s" in str(error)  # 100,000 / 86,400 x 3 x 64
    assert "replicas, and the host has room for 1" in str(error)
    fits = int(error.fix.split("requests_per_day to ")[1].split(";")[0])
    assert plan(parts={"workload": {"requests_per_day": fits}}).replicas
    refusal(parts={"workload": {"requests_per_day": int(fits * 1.01)}})


def test_both_halves_together_are_offered_only_where_they_carry_the_peak():
    between = {"workload": {"requests_per_day": 70_000}}
    error = refusal(parts=between)
    assert "set release.side_by_side to false" in error.fix
    wanted = changed(service(**between), "release", side_by_side=False)
    assert make(wanted, INVENTORY, bundle(), MODEL).core_slots == ((0, 1),)
    hopeless = refusal(parts={"workload": {"requests_per_day": 10_000_000}})
    assert "side_by_side" not in hopeless.fix


def test_facts_of_another_host_are_bad_input():
    other = bundle().model_copy(update={"hosts": ()})
    with pytest.raises(InputError, match="found hosts none, needed local"):
        make(service(), INVENTORY, other, MODEL)
