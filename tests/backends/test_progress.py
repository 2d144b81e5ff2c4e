"""How far an engine's start has come, by lines of its log."""

import pytest

from llmdeploy.backends.progress import at_least, progress

VLLM = """\
(APIServer pid=746) INFO 11-30 13:27:12 [api_utils.py:286] non-default args: {'port': 21000}
(Worker pid=810) INFO 11-30 13:29:08 [parallel_state.py:1] rank 0 in world size 2 is assigned as DP rank 0
(Worker pid=810) INFO 11-30 13:29:10 [default_loader.py:1] Loading weights took 0.21 seconds
(EngineCore pid=790) INFO 11-30 13:29:11 [kv_cache_utils.py:2328] CPU KV cache size: 17,408 tokens, \
Maximum concurrency for 1,024 tokens per request: 17.00x
(APIServer pid=746) INFO:     Application startup complete.
"""  # noqa: E501
SGLANG = """\
[2026-11-30 10:00:00 TP0] Init torch distributed ends. elapsed=1.20 s
[2026-11-30 10:00:09 TP0] Load weight end. type=LlamaForCausalLM, elapsed=8.10 s
[2026-11-30 10:00:10 TP0] KV Cache is allocated. #tokens: 40960, K size: 1.2 GB
[2026-11-30 10:00:20] The server is fired up and ready to roll!
"""


@pytest.mark.parametrize(
    ("engine", "log", "tokens", "load_s"),
    [("vllm", VLLM, 17408, 0.21), ("sglang", SGLANG, 40960, 8.1)],
)
def test_a_whole_start_is_ready_with_its_figures(engine, log, tokens, load_s):
    told = progress(engine, log)
    assert (told.phase, told.kv_cache_tokens, told.load_s) == ("ready", tokens, load_s)


@pytest.mark.parametrize(
    ("lines", "phase"), [(1, None), (2, "comm_ready"), (3, "loaded"), (4, "kv_ready")]
)
def test_each_line_is_a_phase(lines, phase):
    assert progress("vllm", "\n".join(VLLM.splitlines()[:lines])).phase == phase


def test_a_later_line_stands_for_the_earlier_ones():
    told = progress("vllm", VLLM.splitlines()[3])
    assert at_least(told, "loaded")
    assert not at_least(told, "ready")
    assert not at_least(progress("vllm", ""), "comm_ready")
