"""Reads through the whole reader, as far as other tests do not cover them."""

import mmap
from pathlib import Path

import pytest

from kvstored.format.identity import ChunkId
from tests.support.stores import LAYOUT, MIB, NAMESPACE, key, new_board, open_store
from tests.support.waiting import wait_until


@pytest.mark.parametrize("from_dram", [True, False])
def test_no_view_of_an_arena_outlives_its_read(tmp_path: Path, from_dram: bool) -> None:
    """A thread that kept its last transfer would unmap a dead session's arena much later."""
    with open_store(tmp_path) as opened:
        area = mmap.mmap(-1, 8 * MIB)
        opened.arena = memoryview(area)
        opened.fill(2)
        for ticket in opened.put([0, 1]):
            assert ticket.durable is not None
            ticket.durable.result(5)
        if not from_dram:
            for number in (0, 1):
                opened.store._dram.drop(ChunkId(NAMESPACE, key(number)))
        stream = opened.read([0, 1], base=4 * MIB, board=new_board(2, LAYOUT.layer_count))
        assert stream.wait(5)
        del stream, ticket
        opened.arena = memoryview(b"")

        def is_free() -> bool:
            try:
                area.close()
            except BufferError:
                return False
            return True

        wait_until(is_free)
