from typing import Any

import pytest
import torch

from engine_adapters.runner.engine.sampling import TEMPERATURE_MIN, Sampler, Sampling

LOGITS = torch.tensor([0.0, 2.0, 1.0, -1.0])


def draw(sampling: Sampling, count: int = 200) -> list[int]:
    sampler = Sampler(sampling)
    return [sampler.choose(LOGITS) for _ in range(count)]


def test_greedy_takes_the_largest() -> None:
    assert set(draw(Sampling())) == {1}


def test_a_seed_repeats_and_another_does_not() -> None:
    assert draw(Sampling(temperature=1, seed=5)) == draw(Sampling(temperature=1, seed=5))
    assert draw(Sampling(temperature=1, seed=5)) != draw(Sampling(temperature=1, seed=6))


def test_frequencies_follow_the_softmax() -> None:
    drawn = torch.tensor(draw(Sampling(temperature=2.0), 4000)).bincount(minlength=4) / 4000
    assert (drawn - (LOGITS / 2.0).softmax(-1)).abs().max() < 0.04


def test_top_p_keeps_the_smallest_sufficient_set() -> None:
    # Probabilities are 0.087, 0.644, 0.237, 0.032.
    assert set(draw(Sampling(temperature=1, top_p=0.6))) == {1}
    assert set(draw(Sampling(temperature=1, top_p=0.65))) == {1, 2}
    assert set(draw(Sampling(temperature=1, top_p=1.0), 2000)) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "options", [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_p": 1.1}]
)
def test_refuses_values_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Sampling(**options)


@pytest.mark.parametrize("temperature", [1e-300, 1e-38, 1e-6])
def test_a_tiny_temperature_had_no_probabilities(temperature: float) -> None:
    """Bug: logits that it divides are infinite, or no numbers, and the request failed."""
    assert set(draw(Sampling(temperature=temperature), 5)) == {1}
    smallest = Sampling(temperature=TEMPERATURE_MIN)
    assert Sampler(smallest).choose(LOGITS * 1e4) == 1
