"""Which stream of a GPU does what, and waits for which, as far as that shows without one."""

import pytest
import torch

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


class TestPlayedCudaCopies(DeviceCopiesConformance):
    """The promises that do not hang on when something happens: shapes, strides, gaps."""

    @pytest.fixture
    def device(self) -> torch.device:
        return CPU

    @pytest.fixture
    def copies(self, notes: Notes) -> PlayedCudaCopies:
        return PlayedCudaCopies(CPU)

    def test_the_engine_gathers_and_another_stream_copies_out(
        self, copies: PlayedCudaCopies, notes: Notes
    ) -> None:
        """In one piece, since PCIe is slow with small ones."""
        blocks = blocks_on(CPU)
        target = torch.zeros(4, blocks[0].numel() * 8, dtype=torch.uint8)
        notes.clear()
        copies.gather(blocks, [5, 0, 3, 1], target)
        assert notes == [("engine", "index_select"), *OUT]

    def test_what_is_copied_in_waits_for_the_mark_alone(
        self, copies: PlayedCudaCopies, notes: Notes
    ) -> None:
        """The engine waits only where it is held."""
        blocks, parts = blocks_on(CPU), rows_of(blocks_on(CPU), [1, 4])
        mark = copies.mark()
        notes.clear()
        landing = copies.scatter([parts.flatten()], blocks, [2, 3], after=mark)
        assert notes == [
            ("inward", "waits for", "engine"),
            ("inward", "copy_"),
            ("inward", "index_copy_"),
        ]
        notes.clear()
        landing.hold_engine()
        assert notes == [("engine", "waits for", "inward")]

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
