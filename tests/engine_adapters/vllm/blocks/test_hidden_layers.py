"""What a layer may not do while its keys and values are projected."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from engine_adapters.vllm.blocks import hidden_layers
from engine_adapters.vllm.blocks.hidden_layers import CollectiveError, without_collectives

pytestmark = pytest.mark.vllm


class Group:
    """Of ranks."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size

    def all_gather(self, part: Any, dim: int = -1) -> Any:
        return SimpleNamespace(part=part, dim=dim)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_layer_that_asks_other_ranks_waited_for_them(
    monkeypatch: pytest.MonkeyPatch, world_size: int
) -> None:
    """Bug: the first chunk is tried by each rank alone, and others may not come to a meeting."""
    group = Group(world_size)
    monkeypatch.setattr(hidden_layers, "get_tp_group", lambda: group)
    with without_collectives():
        if world_size == 1:
            assert group.all_gather("keys").part == "keys"
        else:
            with pytest.raises(CollectiveError, match="other ranks"):
                group.all_gather("keys", dim=0)
    assert group.all_gather("keys").dim == -1
