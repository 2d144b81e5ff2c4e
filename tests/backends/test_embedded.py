"""The embedded engine's command line, read back by the engine itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdeploy import backends
from llmdeploy.backends.spec import DrillSpec, Place, ServeSpec
from llmdeploy.engine import settings

PLACE = Place(
    python="/opt/llm/bin/python",
    model_folder="/srv/models/smollm2",
    address="127.0.0.1",
    port=21003,
    cores=(2, 3),
)
SERVE = ServeSpec(
    engine="embedded",
    served_name="smollm2",
    device="cpu",
    dtype="bfloat16",
    quantization="none",
    tensor_parallel=1,
    data_parallel=2,
    threads_per_worker=1,
    max_model_len=2048,
    max_num_seqs=64,
    max_num_batched_tokens=512,
    max_queue=64,
    kv_cache_tokens=49152,
    batch_window_s=0.002,
    request_timeout_s=120.0,
    drain_timeout_s=30.0,
    log_level="info",
)
ratios = st.floats(0, 1, allow_nan=False).map(lambda value: round(value, 6))
specs = st.builds(
    ServeSpec,
    engine=st.just("embedded"),
    served_name=st.text("abc-0", min_size=1).filter(lambda name: not name.startswith("-")),
    device=st.sampled_from(["cpu", "cuda"]),
    dtype=st.sampled_from(["bfloat16", "float16", "float32"]),
    quantization=st.sampled_from(["none", "int8", "nf4"]),
    tensor_parallel=st.integers(1, 8),
    data_parallel=st.integers(1, 64),
    threads_per_worker=st.integers(1, 64),
    max_model_len=st.integers(16, 200_000),
    max_num_seqs=st.integers(1, 1024),
    max_num_batched_tokens=st.integers(16, 65536),
    max_queue=st.integers(0, 1000),
    kv_cache_tokens=st.integers(32, 10**8),
    batch_window_s=ratios,
    request_timeout_s=st.floats(0.001, 1e5).map(lambda value: round(value, 3)),
    drain_timeout_s=st.floats(0, 1e4).map(lambda value: round(value, 3)),
    log_level=st.sampled_from(["debug", "info", "warning"]),
    drill=st.none()
    | st.builds(
        DrillSpec,
        slowdown=st.floats(1.5, 100).map(lambda value: round(value, 3)),
        error_ratio=ratios,
        garbage_ratio=ratios,
        after_requests=st.integers(0, 10**6),
    ),
)


def parsed(serve: ServeSpec, place: Place = PLACE) -> settings.EngineSettings:
    argv = backends.command(serve, place).argv
    assert argv[:3] == (place.python, "-m", "llmdeploy.engine")
    return settings.parse(list(argv[3:]))


@given(specs, st.lists(st.integers(0, 255), max_size=4).map(tuple))
def test_the_engine_reads_back_every_value_of_the_plan(serve, cores):
    place = Place(python="python", model_folder="/m", address="10.0.0.1", port=21000, cores=cores)
    found = parsed(serve, place)
    for name in set(ServeSpec.model_fields) - {"engine", "drill", "group"}:
        assert getattr(found, name) == getattr(serve, name), name
    assert (found.model, found.host, found.port, found.cores) == ("/m", "10.0.0.1", 21000, cores)
    if serve.drill is None:
        assert found.drill is None
    else:
        for name in DrillSpec.model_fields:
            assert getattr(found.drill, name) == getattr(serve.drill, name), name


def test_nothing_is_left_to_the_engines_own_defaults():
    argv = backends.command(SERVE, PLACE).argv
    drills = {"--drill-slowdown", "--drill-error-ratio", "--drill-garbage-ratio"}
    options = {
        option
        for action in settings._parser()._actions
        for option in action.option_strings
        if option not in {"-h", "--help", "--drill-after-requests", *drills}
    }
    assert options <= set(argv)


def test_the_command_is_written_whole(check_golden):
    command = backends.command(SERVE, PLACE)
    lines = [f"{name}={value}" for name, value in command.env]
    check_golden("backends/embedded.txt", "\n".join([*lines, *command.argv]) + "\n")


def test_a_cpu_engine_sees_no_gpu_and_a_cuda_engine_does():
    cpu = dict(backends.command(SERVE, PLACE).env)
    cuda = dict(backends.command(SERVE.model_copy(update={"device": "cuda"}), PLACE).env)
    assert cpu["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in cuda


@pytest.mark.parametrize("threads", [1, 4])
def test_thread_pools_have_the_workers_size(threads):
    serve = SERVE.model_copy(update={"threads_per_worker": threads})
    assert dict(backends.command(serve, PLACE).env)["OMP_NUM_THREADS"] == str(threads)
