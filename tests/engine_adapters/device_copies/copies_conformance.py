"""The promises of ``DeviceCopies``, for each implementation.

A class derived from ``DeviceCopiesConformance`` gives ``copies`` and ``device``, as fixtures.
"""

import mmap

import torch
from torch import Tensor

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.landing import all_of

BLOCKS, HEADS, ITEMS = 7, 3, 16
BLOCK_BYTES = HEADS * ITEMS * 8


def blocks_on(device: torch.device, *, gap: int = 0) -> Tensor:
    """Blocks of words that are all different; with a gap heads and blocks lie apart."""
    whole = torch.arange(BLOCKS * (HEADS + gap) * (ITEMS + gap)).to(device)
    return whole.view(BLOCKS, HEADS + gap, ITEMS + gap)[:, :HEADS, :ITEMS]


def rows_of(blocks: Tensor, ids: list[int]) -> Tensor:
    """The bytes of blocks in host memory, one row each."""
    return blocks.cpu()[ids].contiguous().view(len(ids), -1).view(torch.uint8)


class DeviceCopiesConformance:
    """What every caller relies on."""

    def test_blocks_go_out_and_in_as_they_are(
        self, copies: DeviceCopies, device: torch.device
    ) -> None:
        """With and without gaps, into rows of one block or of two, with and without a gap."""
        for gap in (0, 1):
            blocks = blocks_on(device, gap=gap)
            for rows, padding in ((4, 0), (2, 64), (1, 0)):
                memory = torch.zeros(rows, 4 // rows * BLOCK_BYTES + padding, dtype=torch.uint8)
                target = memory[:, : 4 // rows * BLOCK_BYTES]
                copies.gather(blocks, [5, 0, 3, 1], target).wait()
                assert torch.equal(target.reshape(4, -1), rows_of(blocks, [5, 0, 3, 1]))
                assert not memory[:, 4 // rows * BLOCK_BYTES :].any()
                there = torch.zeros_like(blocks_on(device, gap=gap))
                whole = (
                    there
                    if not gap
                    else torch.zeros(BLOCKS, HEADS + 1, ITEMS + 1, dtype=torch.int64, device=device)
                )
                into = whole[:, :HEADS, :ITEMS]
                landing = copies.scatter(list(target), into, [2, 4, 6, 0], after=copies.mark())
                landing.wait()
                assert landing.is_over
                assert torch.equal(into[[2, 4, 6, 0]].cpu(), blocks[[5, 0, 3, 1]].cpu())
                assert not whole[[1, 3, 5]].any()
                assert int(whole.count_nonzero()) == int(blocks[[5, 0, 3, 1]].count_nonzero())

    def test_the_engine_may_overwrite_blocks_that_are_gathered(
        self, copies: DeviceCopies, device: torch.device
    ) -> None:
        blocks = blocks_on(device)
        before = rows_of(blocks, [6, 2])
        target = torch.zeros(2, BLOCK_BYTES, dtype=torch.uint8)
        landing = copies.gather(blocks, [6, 2], target)
        blocks.fill_(-1)
        landing.wait()
        assert torch.equal(target, before)

    def test_the_engine_that_is_held_finds_what_was_copied(
        self, copies: DeviceCopies, device: torch.device
    ) -> None:
        blocks, parts = torch.zeros_like(blocks_on(device)), rows_of(blocks_on(device), [1, 5])
        landing = copies.scatter(list(parts), blocks, [0, 3], after=copies.mark())
        landing.hold_engine()
        found = blocks.clone()
        assert torch.equal(rows_of(found, [0, 3]), parts)

    def test_what_the_engine_does_before_a_mark_does_not_undo_a_copy(
        self, copies: DeviceCopies, device: torch.device
    ) -> None:
        blocks, parts = blocks_on(device), rows_of(blocks_on(device), [1])
        for _ in range(20):
            blocks.add_(1)
        copies.scatter(list(parts), blocks, [4], after=copies.mark()).wait()
        assert torch.equal(rows_of(blocks, [4]), parts)

    def test_tensors_go_out_as_they_are(self, copies: DeviceCopies, device: torch.device) -> None:
        """One, some rows of one, and halves of one, which are not contiguous, stacked."""
        source = torch.randn(48, 256).to(device)
        whole, part, stacked = torch.zeros(48, 256), torch.zeros(43, 256), torch.zeros(2, 48, 128)
        all_of(
            [
                copies.fetch((source,), whole),
                copies.fetch((source[5:],), part),
                copies.fetch((source[:, :128], source[:, 128:]), stacked),
            ]
        ).wait()
        assert torch.equal(whole, source.cpu())
        assert torch.equal(part, source[5:].cpu())
        assert torch.equal(stacked, torch.stack((source[:, :128], source[:, 128:])).cpu())

    def test_memory_that_was_given_back_is_not_copied(
        self, copies: DeviceCopies, device: torch.device
    ) -> None:
        """A state that nobody holds after the call: the allocator may hand its memory out."""
        shown, target = torch.randn(48, 256), torch.zeros(48, 256)
        landing = copies.fetch((shown.to(device, copy=True),), target)
        torch.full((48, 256), -1.0, device=device)
        landing.wait()
        assert torch.equal(target, shown)

    def test_more_tensors_come_in_than_are_on_their_way_at_once(
        self, copies: DeviceCopies, device: torch.device
    ) -> None:
        """Of sizes that grow and shrink, with gaps, and of host memory that is used again."""
        host, sums, expected = torch.empty(40, 300), [], []
        for number in range(12):
            part = host[:, : 100 + (number % 3) * 100]
            part.fill_(float(number))
            with copies.brought(part) as brought:
                assert brought.tensor.shape == part.shape
                sums.append(brought.tensor.double().sum())
            brought.landing.wait()
            part.fill_(-1.0)
            expected.append(float(number) * part.numel())
        copies.mark().wait()
        assert [float(each) for each in sums] == expected

    def test_pinned_memory_of_each_session_is_copied(
        self, copies: DeviceCopies, device: torch.device
    ) -> None:
        for _ in range(2):
            memory = memoryview(mmap.mmap(-1, 1 << 16))
            for _ in range(2):
                copies.pin(memory)
            source = torch.randn(64, 64).to(device)
            target = torch.frombuffer(memory, dtype=torch.float32, count=64 * 64).view(64, 64)
            copies.fetch((source,), target).wait()
            assert torch.equal(target, source.cpu())
