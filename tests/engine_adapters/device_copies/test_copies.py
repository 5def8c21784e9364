"""Every implementation that can run here, and what each adds to the promises."""

import mmap

import pytest
import torch

from engine_adapters.device_copies.cuda_copies import CudaCopies
from engine_adapters.device_copies.host_copies import OVER, HostCopies
from engine_adapters.device_copies.landing import all_of
from engine_adapters.device_copies.open_copies import (
    UnknownDeviceError,
    gathered_bytes,
    open_copies,
)
from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.device_copies.testing.poison import BYTE
from tests.engine_adapters.device_copies.copies_conformance import (
    BLOCK_BYTES,
    DeviceCopiesConformance,
    blocks_on,
    rows_of,
)

CPU = torch.device("cpu")


class TestHostCopies(DeviceCopiesConformance):
    """On a CPU."""

    @pytest.fixture
    def device(self) -> torch.device:
        return CPU

    @pytest.fixture
    def copies(self) -> HostCopies:
        return HostCopies()

    def test_tensors_are_used_where_they_lie(self, copies: HostCopies) -> None:
        host = torch.arange(6.0)
        with copies.brought(host) as brought:
            assert brought.tensor.data_ptr() == host.data_ptr()


class TestDelayedCopies(DeviceCopiesConformance):
    """On a CPU that copies as late as a GPU."""

    @pytest.fixture
    def device(self) -> torch.device:
        return CPU

    @pytest.fixture
    def copies(self) -> DelayedCopies:
        return DelayedCopies(delay_s=0.001)

    def test_targets_are_poison_until_the_copy_is_made(self, copies: DelayedCopies) -> None:
        blocks, target = blocks_on(CPU), torch.zeros(1, BLOCK_BYTES, dtype=torch.uint8)
        fetched, parts = torch.zeros(4), rows_of(blocks_on(CPU), [1])
        with copies.stopped():
            landings = [
                copies.gather(blocks, [0], target),
                copies.scatter(list(parts), blocks, [3], after=copies.mark()),
                copies.fetch((torch.ones(4),), fetched),
            ]
            assert bool((target == BYTE).all())
            assert bool((rows_of(blocks, [3]) == BYTE).all())
            assert not fetched.any() or bool((fetched.view(torch.uint8) == BYTE).all())
            assert not any(landing.is_over for landing in landings)
        all_of(landings).wait()
        assert torch.equal(rows_of(blocks, [3]), parts)

    def test_a_source_that_is_given_away_too_early_shows(self, copies: DelayedCopies) -> None:
        blocks, parts = blocks_on(CPU), rows_of(blocks_on(CPU), [1])
        with copies.stopped():
            landing = copies.scatter(list(parts), blocks, [3], after=OVER)
            parts.fill_(BYTE)
        landing.wait()
        assert bool((rows_of(blocks, [3]) == BYTE).all())

    def test_blocks_are_left_alone_while_the_engine_lags(self, copies: DelayedCopies) -> None:
        blocks, parts = blocks_on(CPU), rows_of(blocks_on(CPU), [1])
        before = blocks.clone()
        with copies.engine_lags():
            landing = copies.scatter(list(parts), blocks, [3], after=copies.mark())
            assert torch.equal(blocks, before)
            assert not landing.is_over
        landing.wait()
        assert torch.equal(rows_of(blocks, [3]), parts)

    def test_copies_come_in_another_order_than_they_were_asked_for(self) -> None:
        copies, target = DelayedCopies(), torch.zeros(64)
        with copies.stopped():
            landings = [
                copies.fetch((torch.full((1,), float(number)),), target[:1]) for number in range(64)
            ]
        all_of(landings).wait()
        assert float(target[0]) != 63.0

    def test_what_was_brought_is_needed_no_more_where_an_error_left_the_context(
        self, copies: DelayedCopies
    ) -> None:
        source = torch.ones(64)
        with pytest.raises(KeyError), copies.brought(source) as brought:
            raise KeyError
        assert brought.landing.is_over
        source.zero_()
        brought.landing.wait()
        assert not copies.overwritten_count

    def test_what_is_overwritten_while_it_is_brought_shows(self, copies: DelayedCopies) -> None:
        source = torch.ones(64)
        with copies.stopped():
            with copies.brought(source) as brought:
                assert bool(brought.tensor.all())
            source.zero_()
        with pytest.raises(RuntimeError, match="overwritten"):
            brought.landing.wait()
        assert copies.overwritten_count == 1

    def test_a_copy_that_fails_says_so_when_all_have_ended(self, copies: DelayedCopies) -> None:
        target = torch.zeros(4)
        late = all_of([copies.fetch((torch.ones(3),), target), copies.fetch((target,), target)])
        with pytest.raises(RuntimeError, match="size"):
            late.wait()
        assert late.is_over


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
class TestCudaCopies(DeviceCopiesConformance):
    """On a GPU."""

    @pytest.fixture
    def device(self) -> torch.device:
        return torch.device("cuda")

    @pytest.fixture
    def copies(self, device: torch.device) -> CudaCopies:
        return CudaCopies(device)

    def test_the_engines_stream_does_not_wait(
        self, copies: CudaCopies, device: torch.device
    ) -> None:
        """Work that the engine launches after a copy does not wait for it: only the other way."""
        source = torch.randn(48, 256, device=device)
        target = torch.zeros(48, 256, pin_memory=True)
        with torch.cuda.stream(copies._outward):
            torch.cuda._sleep(2_000_000_000)
        landing = copies.fetch((source,), target)
        torch.cuda.current_stream().synchronize()
        assert not landing.is_over
        landing.wait()
        assert torch.equal(target, source.cpu())

    def test_a_copy_waits_for_the_engine(self, copies: CudaCopies, device: torch.device) -> None:
        blocks, parts = blocks_on(device), rows_of(blocks_on(device), [1]).pin_memory()
        torch.cuda._sleep(2_000_000_000)
        blocks.fill_(-1)
        landing = copies.scatter(list(parts), blocks, [3], after=copies.mark())
        assert not landing.is_over
        landing.wait()
        assert torch.equal(rows_of(blocks, [3]), parts)

    def test_a_second_session_was_handed_bytes_of_the_first(
        self, copies: CudaCopies, device: torch.device
    ) -> None:
        """*Bug:* CUDA goes by addresses, and the second arena lies where the first one did."""
        del copies
        for number in range(8):
            memory = mmap.mmap(-1, 1 << 24)
            memory[:] = bytes([number]) * len(memory)
            of_session = CudaCopies(device)
            of_session.pin(memoryview(memory))
            source = torch.frombuffer(memory, dtype=torch.uint8)
            with of_session.brought(source) as brought:
                assert bool((brought.tensor == number).all())
            del source, brought, of_session, memory


def test_nothing_late_is_over_at_once() -> None:
    for landings in ([], [OVER, OVER]):
        late = all_of(landings)
        assert late.is_over
        late.wait()
        late.hold_engine()


def test_each_device_gets_its_own() -> None:
    assert isinstance(open_copies(CPU), HostCopies)
    assert gathered_bytes(CPU) == 0, "each copy is made at once"
    assert gathered_bytes(torch.device("cuda")) > 0
    with pytest.raises(UnknownDeviceError, match="copy to xpu"):
        open_copies(torch.device("xpu"))
