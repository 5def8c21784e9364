"""Copies of a step's states into the arena: what a copier promises, and what it must not do."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.snapshot import (
    Copier,
    CudaCopier,
    HostCopier,
    Snapshot,
    copier_for,
)
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import SnapshotGeometry

ROWS, WIDTH = 48, 256
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class CopierConformance:
    """The promises of ``Copier``, for each device's."""

    device: torch.device

    def make(self) -> Copier:
        """A copier of the device."""
        raise NotImplementedError

    def states(self) -> Tensor:
        """Random states on the device, [ROWS, WIDTH]."""
        generator = torch.Generator().manual_seed(7)
        return torch.randn(ROWS, WIDTH, generator=generator).to(self.device)

    def test_every_target_has_its_bytes_when_settled(self) -> None:
        """Also where the source is a view of some rows, as in a padded step."""
        copier, source = self.make(), self.states()
        targets = [torch.zeros(ROWS, WIDTH), torch.zeros(ROWS - 5, WIDTH)]
        copier.copy((source,), targets[0])
        copier.copy((source[5:],), targets[1])
        copier.end()
        copier.settle()
        assert torch.equal(targets[0], source.cpu())
        assert torch.equal(targets[1], source[5:].cpu())

    def test_keys_and_values_lie_one_behind_the_other(self) -> None:
        """Views of some rows, which are not contiguous, in one copy."""
        copier, source = self.make(), self.states()
        keys, values = source[:, : WIDTH // 2], source[:, WIDTH // 2 :]
        target = torch.zeros(2, ROWS, WIDTH // 2)
        copier.copy((keys, values), target)
        copier.end()
        copier.settle()
        assert torch.equal(target, torch.stack((keys, values)).cpu())

    def test_memory_that_was_given_back_is_not_copied(self) -> None:
        """A state that nobody holds after the call: the allocator may hand its memory out."""
        copier, target = self.make(), torch.zeros(ROWS, WIDTH)
        shown = self.states().cpu().clone()
        copier.copy((self.states(),), target)
        torch.full((ROWS, WIDTH), -1.0, device=self.device)
        copier.end()
        copier.settle()
        assert torch.equal(target, shown)


class TestHostCopier(CopierConformance):
    """From a CPU."""

    device = torch.device("cpu")

    def make(self) -> Copier:
        return HostCopier()


@needs_cuda
class TestCudaCopier(CopierConformance):
    """From a GPU."""

    device = torch.device("cuda")

    def make(self) -> Copier:
        return CudaCopier(torch.cuda.Stream())

    def test_the_engines_stream_does_not_wait(self) -> None:
        """Work that the engine launches after a copy does not wait for it: only the other way."""
        stream, source = torch.cuda.Stream(), self.states()
        copier, target = CudaCopier(stream), torch.zeros(ROWS, WIDTH)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000_000)
        copier.copy((source,), target)
        torch.cuda.current_stream().synchronize()
        assert not stream.query()
        copier.end()
        copier.settle()
        assert torch.equal(target, source.cpu())


class CountingCopier(HostCopier):
    """Counts copies."""

    def __init__(self) -> None:
        self.count = 0

    def copy(self, sources: Sequence[Tensor], target: Tensor) -> None:
        self.count += 1
        super().copy(sources, target)


def test_each_stored_layer_is_one_copy(model: Model) -> None:
    kinds = LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 1), (Source.KV, 1))
    state_format = StateFormat.of_model(model, "one copy", schedule=kinds, chunk_tokens=8)
    byte_count = SnapshotGeometry(state_format.states, 5).byte_count
    copier = CountingCopier()
    snapshot = Snapshot(Memory(byte_count), state_format, 5, copier)  # type: ignore[arg-type]  # as far as it is used
    config = model.config
    hidden = torch.randn(7, config.hidden_size)
    keys, values = torch.randn(2, 7, config.kv_head_count, config.head_dim)
    for layer in range(config.layer_count):
        snapshot.take(layer, hidden, keys, values)
        assert copier.count == layer
    assert torch.equal(snapshot.rows(1), hidden[:5])
    assert torch.equal(snapshot.rows(2), torch.stack((keys, values))[:, :5])


class Memory:
    """A region of the arena."""

    def __init__(self, byte_count: int) -> None:
        self._bytes = torch.zeros(byte_count, dtype=torch.uint8)

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        return self._bytes.view(dtype).view(shape)


def test_a_cpu_gets_the_copier_without_streams() -> None:
    assert isinstance(copier_for(torch.device("cpu"), None), HostCopier)
