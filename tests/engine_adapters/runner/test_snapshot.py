"""Copies of a step's states into the arena: what a copier promises, and what it must not do."""

import pytest
import torch
from torch import Tensor

from engine_adapters.runner.snapshot import Copier, CudaCopier, HostCopier, copier_for

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
        copier.copy(source, targets[0])
        copier.copy(source[5:], targets[1])
        copier.end()
        copier.settle()
        assert torch.equal(targets[0], source.cpu())
        assert torch.equal(targets[1], source[5:].cpu())

    def test_memory_that_was_given_back_is_not_copied(self) -> None:
        """A state that nobody holds behind the call: the allocator may hand its memory out."""
        copier, target = self.make(), torch.zeros(ROWS, WIDTH)
        shown = self.states().cpu().clone()
        copier.copy(self.states(), target)
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
        """Work that the engine launches behind a copy does not wait for it: only the other way."""
        stream, source = torch.cuda.Stream(), self.states()
        copier, target = CudaCopier(stream), torch.zeros(ROWS, WIDTH)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000_000)
        copier.copy(source, target)
        torch.cuda.current_stream().synchronize()
        assert not stream.query()
        copier.end()
        copier.settle()
        assert torch.equal(target, source.cpu())


def test_a_cpu_gets_the_copier_without_streams() -> None:
    assert isinstance(copier_for(torch.device("cpu"), None), HostCopier)
