"""Checks of processor and memory, and whether their measured speeds can keep the objectives."""

from llmdeploy.facts.check import Check, Outcome, Question, failed, passed, skipped, warned
from llmdeploy.units import show_bytes, show_ratio, show_seconds

PROCESS_BYTES = 2**30
"""A worker with torch and transformers, and its peak while it loads a model in bf16.
Source: own choice: the plan's figures take its place once there is a plan; a busy worker of a
135M model with its endpoint was seen at 1.7 GiB resident, 0.5 GiB of it weights."""
BUSY_RATIO = 0.5
"""Load a core at which measured speeds and promises no longer hold for the engine alone."""


def cores(question: Question) -> Outcome:
    engine = question.service.engine
    side_by_side = question.service.release.side_by_side
    least = (engine.tensor_parallel or 1) if not question.on_cuda else 1
    good = 2 * least if side_by_side else least
    needed = f"{good} cores: {'two releases side by side, ' if side_by_side else ''}{least} each"
    count = question.facts.cpu_cores
    if count is None:
        return question.unknown("cpu_cores", needed)
    found = f"{count} cores"
    if count < least:
        fix = f"set engine.tensor_parallel to {count}, or use a host with {least} cores"
        return failed(found, needed, fix=fix)
    if count < good:
        fix = "use a host with more cores: old and new release will slow each other here"
        return warned(found, needed, fix=fix)
    return passed(found, needed)


def quota(question: Question) -> Outcome:
    facts, needed = question.facts, "no CPU quota below the cores"
    if not facts.known("cpu_quota_cores") or facts.cpu_cores is None:
        return question.unknown("cpu_quota_cores", needed)
    if facts.cpu_quota_cores is None:
        return passed("no quota", needed)
    found = f"a quota of {facts.cpu_quota_cores:g} of {facts.cpu_cores} cores"
    if facts.cpu_quota_cores >= facts.cpu_cores:
        return passed(found, needed)
    fix = f"raise the container's CPU limit to {facts.cpu_cores}, or pin it to fewer cores instead"
    return warned(found, needed, fix=fix)


def instructions(question: Question) -> Outcome:
    needed = "bf16 instructions (avx512_bf16, amx_bf16, or bf16 on ARM)"
    if question.on_cuda:
        return skipped("the engine runs on CUDA", needed)
    flags = question.facts.cpu_flags
    if flags is None:
        return question.unknown("cpu_flags", needed)
    found = ", ".join(flags) or "no vector instructions that matter"
    if {"avx512_bf16", "amx_bf16", "bf16"} & set(flags):
        return passed(found, needed)
    fix = "leave model.dtype at auto (float32 where bf16 is slower), or use a newer processor"
    return warned(found, needed, fix=fix)


def governor(question: Question) -> Outcome:
    needed = "a governor other than powersave"
    if not question.facts.known("cpu_governor"):
        return question.unknown("cpu_governor", needed)
    name = question.facts.cpu_governor
    if name is None:
        return skipped("the host shows no governor (virtual machine)", needed)
    if name != "powersave":
        return passed(name, needed)
    return warned(name, needed, fix="cpupower frequency-set -g performance")


def load(question: Question) -> Outcome:
    facts = question.facts
    needed = f"less than {show_ratio(BUSY_RATIO)} of the cores busy"
    if facts.load_1min is None or facts.cpu_cores is None:
        return question.unknown("load_1min", needed)
    ratio = facts.load_1min / facts.cpu_cores
    found = f"load {facts.load_1min:g} on {facts.cpu_cores} cores"
    if ratio < BUSY_RATIO:
        return passed(found, needed)
    fix = "see what runs: top; speeds measured meanwhile are too low, and promises with them"
    return warned(found, needed, fix=fix)


def memory(question: Question) -> Outcome:
    """One release must fit: its weights and a process, in the share the engine may take."""
    need_bytes = _release_bytes(question)
    if need_bytes is None:
        return question.without_model("memory for the model's weights and its process")
    ratio = question.service.engine.memory_ratio
    needed = f"{show_bytes(need_bytes)} in {show_ratio(ratio)} of it"
    usable_bytes = question.facts.usable_memory_bytes
    if usable_bytes is None:
        return question.unknown(_memory_fact(question), needed)
    found = f"{show_bytes(usable_bytes)} usable{_limit_words(question)}"
    if usable_bytes * ratio >= need_bytes:
        return passed(found, needed)
    fix = "free memory, raise the container's limit, or set model.quantization to int8"
    return failed(found, needed, fix=fix)


def memory_twice(question: Question) -> Outcome:
    """Old and new release stand side by side while a share moves."""
    need_bytes = _release_bytes(question)
    if not question.service.release.side_by_side:
        return skipped("release.side_by_side is off", "room for two releases")
    if need_bytes is None:
        return question.without_model("room for two releases")
    ratio = question.service.engine.memory_ratio
    needed = f"{show_bytes(2 * need_bytes)} in {show_ratio(ratio)} of it, for two releases"
    usable_bytes = question.facts.usable_memory_bytes
    if usable_bytes is None:
        return question.unknown(_memory_fact(question), needed)
    found = f"{show_bytes(usable_bytes)} usable{_limit_words(question)}"
    if usable_bytes * ratio >= 2 * need_bytes:
        return passed(found, needed)
    return warned(found, needed, fix="free memory before the second release, or use a larger host")


def memory_speed(question: Question) -> Outcome:
    """Every output token reads all weights once: no engine can be faster than that."""
    limit_s = question.service.objectives.tpot_p95_s
    needed = f"at most {show_seconds(limit_s)} per output token (objectives.tpot_p95)"
    if question.on_cuda:
        return skipped("the engine runs on CUDA", needed)
    rate_bytes_per_s = question.facts.memory_read_bytes_per_s
    if rate_bytes_per_s is None:
        return _unmeasured(question, "memory_read_bytes_per_s", needed)
    if question.model is None or question.model.weights_bytes is None:
        return question.without_model(needed)
    weights_bytes = question.model.weights_bytes
    token_s = weights_bytes / rate_bytes_per_s
    found = (
        f"{show_bytes(weights_bytes)} of weights at {show_bytes(rate_bytes_per_s)}/s"
        f" take {show_seconds(token_s)}"
    )
    if token_s <= limit_s:
        return passed(found, needed)
    fix = f"set objectives.tpot_p95 above {show_seconds(token_s)}, or model.quantization to int8"
    return warned(found, needed, fix=fix)


def compute_speed(question: Question) -> Outcome:
    """A prompt takes two operations per parameter and token before its first token comes."""
    limit_s = question.service.objectives.ttft_p95_s
    tokens = question.service.workload.input_tokens.p95
    needed = f"at most {show_seconds(limit_s)} to the first token (objectives.ttft_p95)"
    if question.on_cuda:
        return skipped("the engine runs on CUDA", needed)
    rate_flops_per_s = question.facts.core_matmul_flops_per_s
    if rate_flops_per_s is None:
        return _unmeasured(question, "core_matmul_flops_per_s", needed)
    if question.model is None or question.model.parameters is None:
        return question.without_model(needed)
    prompt_s = 2 * question.model.parameters * tokens / rate_flops_per_s
    found = (
        f"{tokens:g} prompt tokens take {show_seconds(prompt_s)} on one core"
        f" at {rate_flops_per_s / 1e9:.0f} GFLOP/s"
    )
    if prompt_s <= limit_s:
        return passed(found, needed)
    fix = f"set objectives.ttft_p95 above {show_seconds(prompt_s)}, or use a faster host"
    return warned(found, needed, fix=fix)


def _release_bytes(question: Question) -> int | None:
    model = question.model
    if model is None or model.weights_bytes is None:
        return None
    return model.weights_bytes + PROCESS_BYTES


def _limit_words(question: Question) -> str:
    limit_bytes = question.facts.memory_limit_bytes
    return f" under a cgroup limit of {show_bytes(limit_bytes)}" if limit_bytes else ""


def _memory_fact(question: Question) -> str:
    known = question.facts.known("memory_available_bytes")
    return "memory_limit_bytes" if known else "memory_available_bytes"


def _unmeasured(question: Question, fact: str, needed: str) -> Outcome:
    if not question.facts.asked.measured:
        return skipped("not measured: --quick", needed)
    return question.unknown(fact, needed)


CHECKS = (
    Check(
        "cpu.cores",
        "cpu",
        "cores for the releases",
        cores,
        ("cpu_cores", "torch_cuda_devices"),
        gate=True,
    ),
    Check("cpu.quota", "cpu", "no hidden CPU quota", quota, ("cpu_quota_cores", "cpu_cores")),
    Check(
        "cpu.instructions",
        "cpu",
        "fast bf16 instructions",
        instructions,
        ("torch_cuda_devices", "cpu_flags"),
    ),
    Check("cpu.load", "cpu", "an idle host", load, ("load_1min", "cpu_cores")),
    Check("os.cpu.governor", "cpu", "full clock speed", governor, ("cpu_governor",)),
    Check(
        "cpu.compute.speed",
        "cpu",
        "prompts fast enough for TTFT",
        compute_speed,
        ("torch_cuda_devices", "core_matmul_flops_per_s", "model"),
    ),
    Check(
        "os.ram",
        "memory",
        "memory for a release",
        memory,
        ("model", "memory_available_bytes", "memory_limit_bytes", "memory_limit_used_bytes"),
        gate=True,
    ),
    Check(
        "os.ram.twice",
        "memory",
        "memory for old and new",
        memory_twice,
        ("model", "memory_available_bytes", "memory_limit_bytes", "memory_limit_used_bytes"),
    ),
    Check(
        "memory.read.speed",
        "memory",
        "memory fast enough for TPOT",
        memory_speed,
        ("torch_cuda_devices", "memory_read_bytes_per_s", "model"),
    ),
)
