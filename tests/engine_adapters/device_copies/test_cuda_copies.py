"""Which stream of a GPU does what, and waits for which, as far as that shows without one."""

import gc
from collections.abc import Iterator, Sequence

import pytest
import torch

from engine_adapters.device_copies import cuda_copies
from engine_adapters.device_copies.staging_ring import BUFFERS
from tests.engine_adapters.device_copies.copies_conformance import (
    DeviceCopiesConformance,
    blocks_on,
    rows_of,
)
from tests.engine_adapters.device_copies.played_cuda import CPU, PlayedCudaCopies, notes

__all__ = ["notes"]

Notes = list[tuple[str, ...]]
OUT = [("outward", "waits for", "engine"), ("kept for", "outward"), ("outward", "copy_")]
SCATTERED = [
    # *Bug:* ids that the third stream asked for came after all other pieces: one bus, in order.
    ("inward", "copy_"),
    ("inward", "takes ids"),
    ("scattering", "waits for", "inward"),
    # What was copied, and the ids.
    ("kept for", "scattering"),
    ("kept for", "scattering"),
    ("scattering", "index_copy_"),
]


class TestPlayedCudaCopies(DeviceCopiesConformance):
    """The promises that do not hang on when something happens: shapes, strides, gaps."""

    @pytest.fixture
    def device(self) -> torch.device:
        return CPU

    @pytest.fixture
    def copies(self, notes: Notes) -> Iterator[PlayedCudaCopies]:
        copies = PlayedCudaCopies(CPU)
        yield copies
        # As long as CUDA is played.
        copies.pin(None)

    def test_the_engine_gathers_and_another_stream_copies_out(
        self, copies: PlayedCudaCopies, notes: Notes
    ) -> None:
        """In one piece, since PCIe is slow with small ones."""
        blocks = blocks_on(CPU)
        target = torch.zeros(4, blocks[0].numel() * 8, dtype=torch.uint8)
        notes.clear()
        copies.gather(blocks, [5, 0, 3, 1], target)
        assert notes == [("engine", "takes ids"), ("engine", "index_select"), *OUT]

    def test_what_is_copied_in_waits_for_the_mark_alone(
        self, copies: PlayedCudaCopies, notes: Notes
    ) -> None:
        """The engine waits only where it is held."""
        blocks, parts = blocks_on(CPU), rows_of(blocks_on(CPU), [1, 4])
        mark = copies.mark()
        notes.clear()
        landing = copies.scatter([parts.flatten()], blocks, [2, 3], after=mark)
        assert notes == [("scattering", "waits for", "engine"), *SCATTERED]
        notes.clear()
        landing.hold_engine()
        assert notes == [("engine", "waits for", "scattering")]

    @pytest.fixture
    def blocks(self, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
        """Two of them make a piece."""
        blocks = blocks_on(CPU)
        monkeypatch.setattr(cuda_copies, "PIECE_BYTES", 2 * blocks[0].nbytes)
        return blocks

    def test_large_copies_are_made_piece_by_piece(
        self, copies: PlayedCudaCopies, notes: Notes, blocks: torch.Tensor
    ) -> None:
        """While one crosses the bus the next is gathered, or the last one scattered."""
        ids, rows = [5, 0, 3, 1], torch.zeros(4, blocks[0].nbytes, dtype=torch.uint8)
        notes.clear()
        copies.gather(blocks, ids, rows)
        assert notes == [("engine", "takes ids"), ("engine", "index_select"), *OUT] * 2
        assert torch.equal(rows, rows_of(blocks, ids))
        mark, there = copies.mark(), torch.zeros_like(blocks)
        notes.clear()
        copies.scatter(list(rows), there, ids, after=mark)
        assert notes.count(("inward", "copy_")) == 2
        assert notes.count(("scattering", "index_copy_")) == 2
        assert torch.equal(rows_of(there, ids), rows)

    def test_parts_that_do_not_follow_each_other_are_copied_one_by_one(
        self, copies: PlayedCudaCopies, notes: Notes, blocks: torch.Tensor
    ) -> None:
        ids, rows = [5, 0, 3, 1], rows_of(blocks, [2, 4, 6, 0])
        parts = [rows[0], rows[1], rows[3], rows[2]]
        notes.clear()
        there = torch.zeros_like(blocks)
        copies.scatter(parts, there, ids, after=copies.mark())
        # Two that do and two that do not.
        assert notes.count(("inward", "copy_")) == 3
        assert torch.equal(rows_of(there, ids), torch.stack(parts))

    def test_a_region_was_given_back_while_pieces_before_a_failure_were_copied(
        self,
        copies: PlayedCudaCopies,
        notes: Notes,
        blocks: torch.Tensor,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """*Bug:* where memory ran out at a later piece, nobody waited for those before it."""
        ids, rows = [5, 0, 3, 1], torch.zeros(4, blocks[0].nbytes, dtype=torch.uint8)
        calls = iter((True, False))

        def on_device(block_ids: Sequence[int]) -> torch.Tensor:
            if not next(calls):
                raise torch.OutOfMemoryError
            return torch.tensor(block_ids)

        monkeypatch.setattr(copies, "_on_device", on_device)
        with pytest.raises(torch.OutOfMemoryError):
            copies.gather(blocks, ids, rows)
        assert notes[-1] == ("host", "waits for", "outward")
        calls = iter((True, False))
        with pytest.raises(torch.OutOfMemoryError):
            copies.scatter(list(rows), blocks, ids, after=copies.mark())
        assert notes[-2:] == [("host", "waits for", name) for name in ("inward", "scattering")]

    def test_blocks_of_odd_bytes_are_gathered_as_they_are(self, copies: PlayedCudaCopies) -> None:
        blocks = torch.arange(7 * 3, dtype=torch.uint8).view(7, 3)
        rows = torch.zeros(2, 3, dtype=torch.uint8)
        copies.gather(blocks, [4, 1], rows)
        assert torch.equal(rows, blocks[[4, 1]])

    def test_copies_that_are_dropped_give_up_the_memory_when_they_are_over(
        self, copies: PlayedCudaCopies, notes: Notes
    ) -> None:
        """*Bug:* CUDA kept the arena of a session that had ended, and copied its bytes later."""
        dropped = PlayedCudaCopies(CPU)
        dropped.pin(memoryview(bytearray(4096)))
        notes.clear()
        del dropped
        gc.collect()
        assert not notes, "a finalizer calls no CUDA"
        copies.pin(memoryview(bytearray(8192)))
        waits = [("host", "waits for", name) for name in ("outward", "inward")]
        late = [*waits, ("host", "waits for", "scattering"), ("host", "unregisters")]
        assert notes == [*waits, *late, ("host", "registers")]
        copies.pin(None)
        assert notes[-1] == ("host", "unregisters")

    def test_what_goes_out_is_kept_until_then(self, copies: PlayedCudaCopies, notes: Notes) -> None:
        source, target = torch.ones(4, 4), torch.zeros(4, 4)
        notes.clear()
        copies.fetch((source,), target)
        assert notes == OUT

    def test_a_buffer_is_used_again_when_the_engine_has_used_it(
        self, copies: PlayedCudaCopies, notes: Notes
    ) -> None:
        source = torch.ones(4, 4)
        for number in range(BUFFERS + 1):
            notes.clear()
            with copies.brought(source):
                waits = [("inward", "waits for", "engine")] if number == BUFFERS else []
                copied = [("inward", "copy_"), ("engine", "waits for", "inward")]
                assert notes == [*waits, *copied]

    def test_a_context_that_an_error_leaves_waits_for_its_copy(
        self, copies: PlayedCudaCopies, notes: Notes
    ) -> None:
        with pytest.raises(KeyError), copies.brought(torch.ones(4)) as brought:
            _ = {"states": brought}["others"]
        assert notes[-2:] == [("host", "waits for", "inward"), ("kept for", "engine")]
