"""Copies of a step's states into the arena, at once and late."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.host_copies import HostCopies
from engine_adapters.device_copies.landing import Landing
from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.snapshot import Snapshot
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import SnapshotGeometry


class CountingCopies(HostCopies):
    """Counts copies."""

    def __init__(self) -> None:
        self.count = 0

    def fetch(self, sources: Sequence[Tensor], target: Tensor) -> Landing:
        self.count += 1
        return super().fetch(sources, target)


def snapshot_of(model: Model, copies: DeviceCopies) -> tuple[Snapshot, Tensor, Tensor]:
    """Of five of seven rows; the hidden states of layer 1, and keys and values of layer 2."""
    kinds = LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 1), (Source.KV, 1))
    state_format = StateFormat.of_model(model, "one copy", schedule=kinds, chunk_tokens=8)
    byte_count = SnapshotGeometry(state_format.states, 5).byte_count
    snapshot = Snapshot(Memory(byte_count), state_format, 5, copies)  # type: ignore[arg-type]  # as far as it is used
    config = model.config
    hidden = torch.randn(7, config.hidden_size)
    keys, values = torch.randn(2, 7, config.kv_head_count, config.head_dim)
    for layer in range(config.layer_count):
        snapshot.take(layer, hidden, keys, values)
        if isinstance(copies, CountingCopies):
            assert copies.count == layer
    return snapshot, hidden[:5], torch.stack((keys, values))[:, :5]


@pytest.mark.parametrize("copies", [CountingCopies(), DelayedCopies(delay_s=0.002)])
def test_each_stored_layer_is_one_copy_and_there_when_settled(
    model: Model, copies: DeviceCopies
) -> None:
    snapshot, hidden, states = snapshot_of(model, copies)
    snapshot.launch()
    snapshot.settle()
    assert torch.equal(snapshot.rows(1), hidden)
    assert torch.equal(snapshot.rows(2), states)


def test_small_layers_go_together_as_far_as_they_follow_each_other(model: Model) -> None:
    """Until a copy is worth its launch: here two layers of one kind, then one of another."""
    config = model.config
    kinds = LayerSchedule.of((Source.HIDDEN, 2), (Source.KV, config.layer_count - 2))
    state_format = StateFormat.of_model(model, "together", schedule=kinds, chunk_tokens=8)
    copies = CountingCopies()
    byte_count = SnapshotGeometry(state_format.states, 64).byte_count
    memory = Memory(byte_count)
    snapshot = Snapshot(memory, state_format, 64, copies, gathered_bytes=1 << 30)  # type: ignore[arg-type]  # as far as it is used
    shown = []
    for layer in range(config.layer_count):
        hidden = torch.randn(64, config.hidden_size)
        keys, values = torch.randn(2, 64, config.kv_head_count, config.head_dim)
        shown.append((hidden, keys, values))
        snapshot.take(layer, hidden, keys, values)
    assert copies.count == 1
    snapshot.launch()
    assert copies.count == 2
    snapshot.launch()
    assert copies.count == 2
    snapshot.settle()
    for layer, (hidden, keys, values) in enumerate(shown):
        if layer < 2:
            assert torch.equal(snapshot.rows(layer), hidden)
        else:
            assert torch.equal(snapshot.rows(layer), torch.stack((keys, values)))


class Memory:
    """A region of the arena."""

    def __init__(self, byte_count: int) -> None:
        self._bytes = torch.zeros(byte_count, dtype=torch.uint8)

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        return self._bytes.view(dtype).view(shape)
