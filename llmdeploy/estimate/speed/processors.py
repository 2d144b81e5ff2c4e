"""How far engines stay behind a processor's data sheet: the embedded engine's own measured ratios.

The fitted coefficients are those of accelerators. On processors no engine but the embedded one and
vLLM was measured, and these two are alike: for others too these stand, as a roofline.
"""

from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.coefficients import Coefficients, Fitted, coefficients

STEP_OVERHEAD_S = 0.010
REQUEST_S = 0.0008
KV_PASSES = 3
DECODE_RATIO = 1.0
PREFILL_RATIO = 0.90
"""Python and small operations of one step, and of one request's token in it, up to the client;
times that KV passes through memory (pages are gathered: read, written, read); shares of a core's
matrix-product rate that decoding and prefilling reach.

Source: the embedded engine's worker, one thread, SmolLM2-135M bf16, 128 in / 64 out, closed loop.
On a Zen 4 core (206 GFLOP/s, 20 GB/s, both measured) three rounds at 1, 8, 16, 32 requests took
25 to 32, 59 to 64, 100 to 102, 176 to 193 ms per token; on a Xeon's with AMX (1.2 TFLOP/s of
256 x 1024 x 1024, 13 GB/s) 34, 51, 68, 102. The formula gives 28, 63, 102, 181 and 33, 49, 67, 103
(tests/plan/test_speed.py). vLLM 0.32's CPU build on one Zen 4 core, 128 in / 128 out: 25, 130 and
193 tokens/s at 1, 8 and 32 requests (tests/estimate/test_speed_processors.py).
"""
READ_RATIO = 0.8
"""Share of a device's memory rate that reading weights reaches. Source: plan/device.py: 80 % of
two channels of DDR5-4800; no more than assumed on CUDA, where the engine was not measured."""
COPY_RATIO = 0.5
"""Share of a declared processor's products that one replica's workers reach together. Assumed:
the engine was measured on two cores, and a declaration does not say how many there are."""
BURST_RATIO = 0.05
"""Prompts waited for, of those at once. Source: as `ttft_s` says of clients that all start at
once."""


def fitted(case: Case) -> Fitted:
    """The coefficients of a case: those of processors where its device is one."""
    if case.device is None or case.device.vendor != "cpu":
        return coefficients(case)
    return Fitted(
        coefficients=_on_processors(),
        method="roofline",
        kind=f"{case.engine.name}/processors",
        seen=False,
    )


def _on_processors() -> Coefficients:
    """Factors on data-sheet times, and seconds. A prompt holds up those that decode for all of its
    time: the same cores compute both."""
    reads, products = 1 / READ_RATIO, 1 / (COPY_RATIO * DECODE_RATIO)
    prompts = 1 / (COPY_RATIO * PREFILL_RATIO)
    return Coefficients(
        step_s=STEP_OVERHEAD_S, request_s=REQUEST_S, layer_s=0.0, expert_layer_s=0.0,
        state_layer_s=0.0, latent_layer_s=0.0, indexer_layer_s=0.0, dense_read=reads,
        dense_compute=products, expert_read=reads, expert_compute=products, expert_evenness=1.0,
        kv_read=reads, attention_compute=products, collective=1.0, prompt_layer_s=0.0,
        prompt_dense_compute=prompts, prompt_expert_compute=prompts,
        prompt_attention_compute=prompts, mix=1.0, first_s=0.0, first_steps=1.0, cohort=1.0,
        burst=BURST_RATIO,
    )  # fmt: skip
