"""How fast a worker decodes: a roofline of few coefficients, fitted to the embedded engine."""

from dataclasses import dataclass
from math import log2

from llmdeploy.estimate.speed.processors import (
    DECODE_RATIO,
    KV_PASSES,
    PREFILL_RATIO,
    REQUEST_S,
    STEP_OVERHEAD_S,
)
from llmdeploy.plan.device import Device
from llmdeploy.plan.memory import Numerics, kv_bytes_per_token, weights_bytes
from llmdeploy.service import Workload
from llmdeploy.store import Manifest

THREADS_RATIO = 0.78
"""Share of two cores' products that one worker with two threads uses. Source: decode at 32 requests
on two Zen 4 cores: 380 tokens/s in one two-thread process, 483 in two of one thread. Assumed: once
more at each doubling. Threads read memory side by side: 25 GB/s by two of a Xeon, 13 by one."""
RANKS_RATIO = 0.5
"""The same for N tensor-parallel ranks on CPU. Source: 9.5 against 18 tokens/s at two ranks."""
QUANTIZED_RATIO = {"none": 1.0, "int8": 0.31, "nf4": 0.9}
"""Products against bf16. Source: bitsandbytes 0.50.2 on the Zen 4 machine at 8 requests:
135 tokens/s plain, 66 int8, 138 nf4."""
KNEE = {"cpu": 32, "cuda": 256}
"""Requests a worker beyond which decoding more together brings little: tokens/s grow by 7 % from
16 to 32 on CPU (same measurement). On CUDA assumed: vLLM 0.11 `max_num_seqs` default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One worker's rates and what a token costs it."""

    read_bytes_per_s: float
    decode_flops_per_s: float
    prefill_flops_per_s: float
    weights_bytes: int
    decode_flops: float
    prefill_flops: float
    kv_bytes: float
    """Of one request's mean context, gathered at every step."""
    input_tokens: float
    output_tokens: float

    @property
    def prefill_s_per_token(self) -> float:
        return self.prefill_flops / self.prefill_flops_per_s

    def step_s(self, batch: float) -> float:
        """Seconds of a decode step: overheads + weights read and KV gathered + products."""
        read_bytes = self.weights_bytes + batch * KV_PASSES * self.kv_bytes
        products_s = batch * self.decode_flops / self.decode_flops_per_s
        overhead_s = STEP_OVERHEAD_S + batch * REQUEST_S
        return overhead_s + read_bytes / self.read_bytes_per_s + products_s

    def tpot_s(self, batch: float) -> float:
        """Seconds per output token of each of `batch` requests that never stop coming.

        T_decode(batch, context = in + out/2) + batch x in / out x prefill time per token.
        Source: the closed-loop fit of dense models' public measurements, 5 % mean error.
        """
        prefills = batch * self.input_tokens / self.output_tokens
        return self.step_s(batch) + prefills * self.prefill_s_per_token

    def tokens_per_s(self, batch: float) -> float:
        """Output tokens per second of one saturated worker."""
        return batch / self.tpot_s(batch)

    def ttft_s(self, prompt_tokens: float, *, chunk_tokens: int, batch: float) -> float:
        """Seconds to the first token of a prompt that finds `batch` requests decoding: its own
        prefill, and a decode step for each chunk it is cut into."""
        chunks = -(-prompt_tokens // chunk_tokens)
        return prompt_tokens * self.prefill_s_per_token + chunks * self.step_s(batch)

    def batch_within(self, tpot_limit_s: float, *, knee: int) -> int:
        """The largest batch up to the knee whose time per token stays within the limit, or 0."""
        fitting = (batch for batch in range(knee, 0, -1) if self.tpot_s(batch) <= tpot_limit_s)
        return next(fitting, 0)


def pace(
    manifest: Manifest,
    numerics: Numerics,
    workload: Workload,
    *,
    device: Device,
    workers: int,
    ranks: int,
) -> Pace:
    """The pace of one of `workers` that divide the release's cores, or its card, between them."""
    shape, speed = manifest.shape, device.speed
    cores = device.cores / workers if device.kind == "cpu" else ranks
    shared = RANKS_RATIO if ranks > 1 else threads_ratio(cores)
    # a product of 32-bit numbers takes twice as long, where 16-bit ones are not emulated
    width_ratio = 2 / numerics.element_bytes if device.fast_bfloat16 else 1.0
    flops_per_s = speed.matmul_flops_per_s * cores * shared * width_ratio
    vocabulary = shape.vocabulary_size * shape.hidden_size
    context = workload.input_tokens.mean + workload.output_tokens.mean / 2
    return Pace(
        read_bytes_per_s=speed.read_bytes_per_s * cores,
        decode_flops_per_s=flops_per_s * DECODE_RATIO * QUANTIZED_RATIO[numerics.quantization],
        prefill_flops_per_s=flops_per_s * PREFILL_RATIO * QUANTIZED_RATIO[numerics.quantization],
        weights_bytes=weights_bytes(manifest, numerics),
        decode_flops=2.0 * (manifest.matrix_parameters + vocabulary),
        prefill_flops=2.0 * manifest.matrix_parameters,
        kv_bytes=context * kv_bytes_per_token(shape, numerics),
        input_tokens=workload.input_tokens.mean,
        output_tokens=workload.output_tokens.mean,
    )


def threads_ratio(cores: float) -> float:
    """Share of that many cores' products that the threads of one worker use."""
    return float(THREADS_RATIO ** log2(max(1.0, cores)))
