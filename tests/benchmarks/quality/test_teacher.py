"""A model that has its script said."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from benchmarks.quality.bare_window import BareWindow
from benchmarks.quality.teacher import TeacherModel
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model

SCRIPT = [5, 9, 2, 77, 300, 41, 8, 8, 1, 3, 12, 500]


@pytest.fixture
def teacher(small_model: Path) -> TeacherModel:
    return TeacherModel.from_directory(small_model, dtype=torch.float32)


def test_an_engine_says_the_script_and_then_what_the_model_says(
    teacher: TeacherModel, small_model: Path
) -> None:
    teacher.teach(SCRIPT)
    engine = Engine(teacher, cache_tokens=32)
    engine.add_request(SCRIPT[:4], new_tokens_max=len(SCRIPT) - 4 + 2)
    (completion,) = engine.run()
    assert list(completion.token_ids[: len(SCRIPT)]) == SCRIPT

    plain = Engine(Model.from_directory(small_model, dtype=torch.float32), cache_tokens=32)
    plain.add_request(SCRIPT, new_tokens_max=2)
    (expected,) = plain.run()
    assert completion.token_ids == expected.token_ids


def test_losses_are_those_of_the_model(teacher: TeacherModel, small_model: Path) -> None:
    teacher.teach(SCRIPT)
    engine = Engine(teacher, cache_tokens=32, token_budget=3, requests_max=1)
    engine.add_request(SCRIPT[:7], new_tokens_max=len(SCRIPT) - 7)
    engine.run()
    model = Model.from_directory(small_model, dtype=torch.float32)
    logits = BareWindow(model, window_tokens=32).extend(SCRIPT)
    expected = cross_entropy(logits[:-1], torch.tensor(SCRIPT[1:]), reduction="none")
    assert torch.isnan(teacher.losses[0])
    assert torch.allclose(teacher.losses[1:], expected, atol=1e-4)
    teacher.teach(SCRIPT)
    assert torch.isnan(teacher.losses).all()
