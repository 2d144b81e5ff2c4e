"""Choosing tokens from logits, with hand-made distributions."""

import math

import pytest
import torch

from llmdeploy.engine.messages import Sampling
from llmdeploy.engine.sampler import Choice, choose


def logits_of(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def drawn(logits: torch.Tensor, sampling: Sampling, times: int) -> list[int]:
    choice = Choice(sampling)
    return [choose(logits.clone(), [choice])[0].id for _ in range(times)]


def test_temperature_zero_takes_the_most_likely_token():
    tokens = drawn(logits_of(0.2, 0.5, 0.3), Sampling(temperature=0), 5)
    assert tokens == [1] * 5


def test_samples_follow_the_distribution():
    tokens = drawn(logits_of(0.1, 0.6, 0.3), Sampling(seed=3), 3000)
    shares = [tokens.count(token) / 3000 for token in range(3)]
    assert shares == pytest.approx([0.1, 0.6, 0.3], abs=0.03)


def test_a_high_temperature_flattens():
    # p^(1/2) of 0.1, 0.9 is 0.316, 0.949: shares 0.25 and 0.75
    tokens = drawn(logits_of(0.1, 0.9), Sampling(temperature=2.0, seed=5), 3000)
    assert tokens.count(0) / 3000 == pytest.approx(0.25, abs=0.03)


def test_top_k_leaves_only_the_k_most_likely():
    tokens = drawn(logits_of(0.1, 0.4, 0.3, 0.2), Sampling(top_k=2, seed=1), 1000)
    assert set(tokens) == {1, 2}
    assert tokens.count(1) / 1000 == pytest.approx(4 / 7, abs=0.06)


def test_top_p_keeps_the_smallest_set_that_holds_it():
    # 0.4 + 0.3 = 0.7 >= 0.65, so the 0.2 and the 0.1 are out
    tokens = drawn(logits_of(0.1, 0.4, 0.3, 0.2), Sampling(top_p=0.65, seed=1), 1000)
    assert set(tokens) == {1, 2}


def test_top_p_looks_at_the_whole_row_where_the_candidates_are_not_enough():
    logits = torch.zeros(1, 2000)
    tokens = drawn(logits, Sampling(top_p=0.9, seed=1), 400)
    assert len(set(tokens)) > 256


def test_top_k_may_exceed_the_candidates():
    tokens = drawn(torch.zeros(1, 2000), Sampling(top_k=1000, seed=1), 1500)
    assert 256 < len(set(tokens)) <= 1000


def test_a_seed_gives_the_same_tokens_in_any_company():
    logits = torch.randn(1, 500, generator=torch.Generator().manual_seed(0))
    other = torch.randn(1, 500, generator=torch.Generator().manual_seed(1))
    for sampling in (Sampling(seed=11), Sampling(seed=11, top_p=0.8), Sampling(seed=11, top_k=20)):
        alone, joined = Choice(sampling), Choice(sampling)
        company = [Choice(Sampling(seed=s, top_p=0.9 if s % 2 else 1.0)) for s in range(7)]
        for _ in range(20):
            expected = choose(logits.clone(), [alone])[0].id
            rows = torch.cat([*[other] * 4, logits, *[other] * 3])
            tokens = choose(rows, [*company[:4], joined, *company[4:]])
            assert tokens[4].id == expected


def test_different_seeds_give_different_tokens():
    logits = torch.zeros(1, 1000)
    assert drawn(logits, Sampling(seed=1), 8) != drawn(logits, Sampling(seed=2), 8)


def test_penalties_act_on_tokens_already_chosen():
    # 0.5 then 0.4: once token 0 is out, a presence penalty of 1 puts it at 0.5/e = 0.18 < 0.4
    tokens = drawn(logits_of(0.5, 0.4, 0.1), Sampling(temperature=0, presence_penalty=1.0), 2)
    assert tokens == [0, 1]
    # ln 0.5 = -0.69, ln 0.4 = -0.92: a frequency penalty of 0.1 lets token 0 win 3 times
    tokens = drawn(logits_of(0.5, 0.4, 0.1), Sampling(temperature=0, frequency_penalty=0.1), 4)
    assert tokens == [0, 0, 0, 1]


def test_a_bias_moves_its_token_alone():
    sampling = Sampling(temperature=0, logit_bias=((2, 100.0),))
    assert drawn(logits_of(0.5, 0.4, 0.1), sampling, 3) == [2, 2, 2]
    sampling = Sampling(temperature=1, seed=4, logit_bias=((0, -100.0),))
    assert 0 not in drawn(logits_of(0.5, 0.4, 0.1), sampling, 200)


def test_logprobs_are_the_models_own_before_bias_and_temperature():
    sampling = Sampling(temperature=0, top_logprobs=2, logit_bias=((2, 100.0),))
    (token,) = choose(logits_of(0.5, 0.4, 0.1), [Choice(sampling)])
    assert token.id == 2
    assert token.logprob == pytest.approx(math.log(0.1), abs=1e-5)
    assert [id for id, _ in token.top] == [0, 1]
    assert [p for _, p in token.top] == pytest.approx([math.log(0.5), math.log(0.4)], abs=1e-5)


def test_no_logprobs_where_none_are_asked():
    tokens = choose(
        logits_of(0.5, 0.5).repeat(2, 1), [Choice(Sampling()), Choice(Sampling(top_logprobs=0))]
    )
    assert tokens[0].logprob is None
    assert tokens[1].logprob == pytest.approx(math.log(0.5))
    assert tokens[1].top == ()
