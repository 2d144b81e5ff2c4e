"""A batch with tiny random models: equal to `generate`, bounded, and back after a fault."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmdeploy.engine.batch import PAGE_TOKENS, Batch
from llmdeploy.engine.drill import Drill
from llmdeploy.engine.loader import load
from llmdeploy.engine.messages import Generate, Output, Sampling
from llmdeploy.engine.worker import start_batch

from .tiny_models import VOCABULARY, make_tiny, settings

GREEDY = Sampling(temperature=0.0)
FUSED = {"llama": {}, "mistral": {"sliding_window": None}, "qwen2": {}}
GENERIC = {"qwen3": {}, "olmo2": {}}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.inference_mode():
        yield


def batch_of(model: str, **changes: object) -> Batch:
    chosen = settings(model, **changes)
    return start_batch(load(chosen), chosen, drill=Drill(None, vocabulary=VOCABULARY))


def prompt_of(tokens: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, VOCABULARY, (tokens,), generator=generator).tolist())


def request(id: str, prompt: tuple[int, ...], *, max_tokens: int = 12, **sampling) -> Generate:
    chosen = replace(GREEDY, **sampling)
    return Generate(id=id, prompt=prompt, max_tokens=max_tokens, sampling=chosen)


def run(batch: Batch, *requests: Generate) -> dict[str, list[Output]]:
    """Outputs by request id, once all are finished."""
    outputs: dict[str, list[Output]] = {}
    refused = [output for r in requests if (output := batch.add(r))]
    while not batch.idle:
        for output in batch.advance():
            outputs.setdefault(output.id, []).append(output)
    for output in refused:
        outputs.setdefault(output.id, []).append(output)
    return outputs


def tokens_of(outputs: list[Output]) -> list[int]:
    return [token.id for output in outputs for token in output.tokens]


def generated(model: str, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
    """What `generate` says, without the end-of-sequence token."""
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.tensor([prompt])
    out = reference.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False
    )
    return [token for token in out[0, len(prompt) :].tolist() if token != 2]


@pytest.mark.parametrize(
    ("kind", "more"), [*FUSED.items(), *GENERIC.items(), ("mistral", {"sliding_window": 16})]
)
def test_greedy_answers_equal_generate(tmp_path, kind, more):
    model = make_tiny(tmp_path, kind=kind, **more)
    prompts = [prompt_of(n, seed=n) for n in (1, 2, 15, 16, 17, 40, 100, 33)]
    batch = batch_of(model, max_num_batched_tokens=48)  # longer prompts come in chunks
    outputs = run(batch, *[request(str(i), p) for i, p in enumerate(prompts)])
    for i, prompt in enumerate(prompts):
        assert tokens_of(outputs[str(i)]) == generated(model, prompt, 12), i


def test_only_models_of_the_family_are_fused(tmp_path):
    for kind, more in [*FUSED.items(), *GENERIC.items()]:
        loaded = load(settings(make_tiny(tmp_path / kind, kind=kind, **more)))
        assert (loaded.fused is not None) == (kind in FUSED), kind


def test_a_request_ends_with_length_or_with_stop(tiny):
    prompts = [prompt_of(9, seed=seed) for seed in range(30)]
    batch = batch_of(tiny)
    outputs = run(batch, *[request(str(i), p, max_tokens=60) for i, p in enumerate(prompts)])
    finishes = {outputs[str(i)][-1].finish for i in range(30)}
    assert finishes == {"length", "stop"}
    for answers in outputs.values():
        tokens = tokens_of(answers)
        assert 2 not in tokens
        assert (len(tokens) == 60) == (answers[-1].finish == "length")
    assert batch.prompt_tokens == 30 * 9
    assert batch.generated_tokens == sum(len(tokens_of(o)) for o in outputs.values())


def test_ignoring_the_end_token_goes_on_to_the_length(tiny):
    prompts = [prompt_of(9, seed=seed) for seed in range(30)]
    requests = [request(str(i), p, max_tokens=60, ignore_eos=True) for i, p in enumerate(prompts)]
    outputs = run(batch_of(tiny), *requests)
    assert all(len(tokens_of(answers)) == 60 for answers in outputs.values())
    assert any(2 in tokens_of(answers) for answers in outputs.values())


def test_the_same_seed_gives_the_same_tokens_alone_and_in_a_batch_of_8(tiny):
    def sampled(id: str, seed: int) -> Generate:
        prompt = prompt_of(20, seed=seed)
        return request(id, prompt, temperature=1.0, seed=seed, top_p=0.95, ignore_eos=True)

    alone = [tokens_of(run(batch_of(tiny), sampled("a", s))["a"]) for s in range(8)]
    together = run(batch_of(tiny), *[sampled(str(s), s) for s in range(8)])
    assert [tokens_of(together[str(s)]) for s in range(8)] == alone
    assert len({tuple(tokens) for tokens in alone}) == 8


def test_prefix_pages_are_shared_and_answers_stay_the_same(tiny):
    batch = batch_of(tiny)
    prompt = prompt_of(70)
    first = tokens_of(run(batch, request("a", prompt))["a"])
    batch.add(request("b", prompt))
    batch.advance()
    rows = batch._processor.inputs_and_outputs.num_q_tokens
    assert rows == 70 - 64  # four pages of 16 are known
    outputs = []
    while not batch.idle:
        outputs += batch.advance()
    assert tokens_of(run(batch, request("c", prompt))["c"]) == first


def test_cancelling_frees_the_pages(tiny):
    batch = batch_of(tiny)
    batch.add(request("a", prompt_of(50), max_tokens=100, ignore_eos=True))
    batch.add(request("b", prompt_of(30, seed=1), max_tokens=100, ignore_eos=True))
    batch.advance()
    assert batch.kv_used_tokens() == 64 + 32
    assert batch.cancel("a") == Output(id="a", finish="cancelled")
    assert batch.cancel("a") is None
    assert {output.id for output in batch.advance()} == {"b"}
    assert batch.kv_used_tokens() == 32
    batch.cancel("b")
    assert not batch.idle  # one more step, to free its pages
    assert batch.advance() == ()
    assert batch.idle
    assert batch.kv_used_tokens() == 0


def test_a_request_cancelled_before_its_first_step_never_runs(tiny):
    batch = batch_of(tiny)
    batch.add(request("a", prompt_of(5)))
    batch.cancel("a")
    assert batch.advance() == ()
    assert (batch.idle, batch.running, batch.waiting) == (True, 0, 0)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "found"),
    [
        ((), 4, "0 tokens"),
        ((5, VOCABULARY), 4, f"token {VOCABULARY} is outside"),
        ((5, -1), 4, "token -1 is outside"),
        ((5,), 0, "max_tokens is 0"),
        ((5,) * 500, 13, "513 tokens, at most 512"),
        ((5,) * 200, 57, "257 tokens, the cache holds 256"),
    ],
)
def test_what_cannot_be_served_is_refused_and_others_go_on(tiny, prompt, max_tokens, found):
    kv_cache_tokens = 256 if len(prompt) == 200 else 4096
    batch = batch_of(tiny, kv_cache_tokens=kv_cache_tokens)
    good, bad = request("good", prompt_of(8)), request("bad", prompt, max_tokens=max_tokens)
    outputs = run(batch, good, bad)
    (refusal,) = outputs["bad"]
    assert refusal.finish == "error"
    assert found in str(refusal.error)
    assert len(tokens_of(outputs["good"])) > 0
    assert batch.restarts == 0


def test_a_biased_token_outside_the_vocabulary_is_refused(tiny):
    outputs = run(batch_of(tiny), request("a", (5,), logit_bias=((VOCABULARY, 1.0),)))
    assert "logit_bias" in str(outputs["a"][0].error)


def test_the_longest_request_that_is_admitted_fits(tiny):
    batch = batch_of(tiny, kv_cache_tokens=256)
    outputs = run(batch, request("a", prompt_of(200), max_tokens=56, ignore_eos=True))
    assert len(tokens_of(outputs["a"])) == 56


def test_a_tight_cache_preempts_and_all_answers_stay_right(tiny):
    batch = batch_of(tiny, kv_cache_tokens=256)
    requests = [
        request(str(i), prompt_of(40, seed=i), max_tokens=60, ignore_eos=True) for i in range(6)
    ]
    roomy = run(batch_of(tiny), *requests)
    tight = run(batch, *requests)  # 6 x 100 tokens in 256
    for i in range(6):
        assert tokens_of(tight[str(i)]) == tokens_of(roomy[str(i)]), i
    assert batch.kv_used_tokens() == 0
    assert batch.restarts == 0


def test_preempted_requests_keep_their_seed_and_penalties(tiny):
    requests = [
        request(
            str(i), prompt_of(40, seed=i), max_tokens=60, ignore_eos=True,
            temperature=0.9, seed=i, presence_penalty=0.5, frequency_penalty=0.2,
        )
        for i in range(6)
    ]  # fmt: skip
    roomy = run(batch_of(tiny), *requests)
    tight = run(batch_of(tiny, kv_cache_tokens=256), *requests)
    assert [tokens_of(tight[str(i)]) for i in range(6)] == [
        tokens_of(roomy[str(i)]) for i in range(6)
    ]


def test_no_more_than_max_num_seqs_decode_together(tiny):
    batch = batch_of(tiny, max_num_seqs=3)
    for i in range(7):
        batch.add(request(str(i), prompt_of(6, seed=i), ignore_eos=True))
    most = 0
    while not batch.idle:
        most = max(most, len(batch.advance()))
    assert most == 3


def test_a_step_takes_no_more_than_its_token_budget(tiny):
    batch = batch_of(tiny, max_num_batched_tokens=32)
    for i in range(3):
        batch.add(request(str(i), prompt_of(50, seed=i)))
    rows = []
    while not batch.idle:
        batch.advance()
        rows.append(batch._processor.inputs_and_outputs.num_q_tokens)
    assert max(rows) == 32


def test_after_a_fatal_step_requests_end_with_an_error_and_the_next_is_served(tiny):
    batch = batch_of(tiny)
    expected = tokens_of(run(batch, request("before", prompt_of(20)))["before"])
    batch.add(request("a", prompt_of(20)))
    batch.add(request("b", prompt_of(30, seed=1)))
    batch.advance()
    batch._processor.cache = None  # what a bug in a step would do
    with pytest.raises(AttributeError) as fault:
        batch.advance()
    failed = batch.recover(fault.value)
    assert {output.id for output in failed} == {"a", "b"}
    assert all(output.finish == "error" and output.error for output in failed)
    assert (batch.restarts, batch.idle, batch.kv_used_tokens()) == (1, True, 0)
    assert tokens_of(run(batch, request("after", prompt_of(20)))["after"]) == expected


def test_logprobs_are_reported_where_asked(tiny):
    outputs = run(
        batch_of(tiny), request("a", prompt_of(6), top_logprobs=3), request("b", prompt_of(6))
    )
    for output in outputs["a"]:
        for token in output.tokens:
            assert token.top[0] == (token.id, token.logprob)
            assert len(token.top) == 3
    assert all(token.logprob is None for output in outputs["b"] for token in output.tokens)


def test_the_cache_has_the_tokens_of_the_settings(tiny):
    assert batch_of(tiny, kv_cache_tokens=1000).kv_cache_tokens == 1000 // PAGE_TOKENS * PAGE_TOKENS
    assert batch_of(tiny, kv_cache_tokens=4096, data_parallel=2).kv_cache_tokens == 2048
