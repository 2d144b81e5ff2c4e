"""Larger steps are suggested where chunks of long prompts cost time, with the figures of both."""

import pytest

from llmdeploy.catalog import engines, models
from llmdeploy.estimate import memory
from llmdeploy.plan.changes import refusal
from llmdeploy.plan.engine_pace import engine_pace
from llmdeploy.plan.larger_steps import larger_steps, step_notes, with_step
from llmdeploy.plan.rank import best
from llmdeploy.plan.search import search
from llmdeploy.plan.size import Estimators
from llmdeploy.service import Lengths
from llmdeploy.units import show_seconds

from .stand_ins import pool, service

USING = Estimators(memory=memory.estimate, pace=engine_pace)
VLLM = engines.find("vllm 0.33.0")
SHAPE = models.find("Qwen/Qwen3-30B-A3B")
LONG = Lengths(mean=6000, p95=16000)


def asked(*, p95_s: float, prompts: Lengths = LONG, step: int = 512):
    made = service(
        workload={"input_tokens": prompts, "requests_per_day": 20_000},
        engine={"max_model_len": 20_480, "kind": "vllm"},
        objectives={"ttft_p95_s": p95_s, "tpot_p95_s": 0.1},
    )
    return with_step(made, step)


def found(wanted):
    return search(wanted, SHAPE, [pool("h100-sxm", 1)], engine=VLLM, using=USING)


@pytest.mark.parametrize(
    ("p95", "step", "steps"),
    [(16_000, 2048, [4096, 8192, 16384]), (500_000, 8192, [16384]), (2000, 2048, []),
     (700, 512, [1024])],
)  # fmt: skip
def test_steps_double_until_the_longest_usual_prompt_is_whole(p95, step, steps):
    wanted = asked(p95_s=1.0, prompts=Lengths(mean=400, p95=p95), step=step)
    assert list(larger_steps(wanted)) == steps


def test_a_refusal_for_the_first_token_names_a_larger_step_that_does():
    wanted = asked(p95_s=0.7)
    result = found(wanted)
    assert not result.options
    refused = refusal(result, wanted, SHAPE, [pool("h100-sxm", 1)], engine=VLLM, using=USING)
    assert "(ttft)" in str(refused)
    words = "set engine.max_num_batched_tokens to "
    assert words in refused.fix
    tokens = int(refused.fix.partition(words)[2].partition(":")[0])
    option = best(found(with_step(wanted, tokens)).options)
    assert option.ttft_p95_s <= 0.7
    assert f"p95 TTFT {show_seconds(option.ttft_p95_s)}" in refused.fix
    assert not found(with_step(wanted, tokens // 2)).options


def test_a_plan_says_what_a_larger_step_would_gain():
    wanted = asked(p95_s=10.0)
    option = best(found(wanted).options)
    (note,) = step_notes(option, wanted, SHAPE, using=USING)
    assert note.startswith("Prompts longer than 512 tokens are computed in chunks, one a step")
    tokens = int(note.partition("max_num_batched_tokens ")[2].split()[0])
    layout = option.parts[0].sized.proposal.name
    larger = next(
        other
        for other in found(with_step(wanted, tokens)).options
        if other.parts[0].sized.proposal.name == layout
    )
    assert larger.ttft_p95_s < 0.9 * option.ttft_p95_s
    assert f"to {show_seconds(larger.ttft_p95_s)}, p95 TPOT" in note


def test_nothing_is_said_where_prompts_are_whole_or_nothing_is_gained():
    short = asked(p95_s=10.0, prompts=Lengths(mean=200, p95=400))
    assert list(step_notes(best(found(short).options), short, SHAPE, using=USING)) == []
    dense = models.find("meta-llama/Llama-3.1-8B-Instruct")
    wanted = asked(p95_s=20.0, prompts=Lengths(mean=4000, p95=8000), step=2048)
    result = search(wanted, dense, [pool("rtx4090", 8)], engine=VLLM, using=USING)
    assert list(step_notes(best(result.options), wanted, dense, using=USING)) == []
