"""Others in every step: they take time, and change nothing of the tokens."""

from collections.abc import Iterator

import pytest

from benchmarks.cake.measured.fluctuating_budget import FluctuatingBudget
from benchmarks.cake.measured.shared_model import SharedModel
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model

PROMPT = list(range(1, 91))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SharedModel:
    folder = tmp_path_factory.mktemp("model")
    shape = RandomModelShape(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=64,
        layer_count=2,
        head_count=2,
        kv_head_count=2,
        position_count=512,
    )
    write_random_model(folder, shape, ["a few words"])
    loaded = SharedModel.from_directory(folder)
    assert isinstance(loaded, SharedModel)
    return loaded


def engine(model: SharedModel, token_budget: int) -> Engine:
    made = Engine(model, cache_tokens=100, token_budget=token_budget, requests_max=1)
    made.add_request(PROMPT, new_tokens_max=4, stop_token_ids=())
    return made


def plain(model: SharedModel) -> tuple[int, ...]:
    model.begin()
    (completion,) = engine(model, 32).run()
    return completion.generated_ids


class TestSharedModel:
    def test_others_change_no_token_and_leave_with_the_first_one(self, model: SharedModel) -> None:
        expected = plain(model)
        model.begin(others_tokens=24, others_stop_max=len(PROMPT) + 32)
        (completion,) = engine(model, 8).run()
        assert completion.generated_ids == expected
        assert model.has_answered

    def test_it_remembers_every_step(self, model: SharedModel) -> None:
        plain(model)
        assert [step.token_count for step in model.steps] == [32, 32, 26, 1, 1, 1]
        assert [step.stop_position for step in model.steps] == [32, 64, 90, 91, 92, 93]
        assert all(step.duration_s > 0 for step in model.steps)


class TestFluctuatingBudget:
    @staticmethod
    def counts(model: SharedModel, seed: str) -> Iterator[int]:
        model.begin(others_stop_max=len(PROMPT) + 32)
        budget = FluctuatingBudget(model, seed, step_tokens=32)
        running = engine(model, 32)
        while not running.is_idle:
            budget.step(running)
        return iter([step.token_count for step in model.steps])

    def test_equal_seeds_give_equal_steps_of_all_sizes(self, model: SharedModel) -> None:
        first, second, other = (list(self.counts(model, seed)) for seed in ("1", "1", "2"))
        assert first == second != other
        prefill = first[:-3]
        assert sum(prefill) == len(PROMPT)
        assert max(prefill) <= 32
        assert len(set(prefill)) > 2
