"""Why states of a model are not stored."""

from types import SimpleNamespace

import pytest
import torch

from engine_adapters.transformers.support import refusal_of
from tests.engine_adapters.transformers.models import make_model


def test_a_model_on_several_devices_failed_after_a_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: ``generate`` raised: all states were restored to the device of its first layer."""
    model = make_model()
    assert refusal_of(model) == ""
    weights = [*model.parameters(), SimpleNamespace(device=torch.device("cuda", 1))]
    monkeypatch.setattr(model, "parameters", lambda: weights)
    assert refusal_of(model) == "its weights are on several devices"


def test_weights_that_are_not_in_memory_have_no_device() -> None:
    """Also where others are: accelerate leaves only some of them out."""
    model = make_model()
    model.lm_head.to("meta")
    assert refusal_of(model) == "some of its weights are not in memory"
