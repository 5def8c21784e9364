"""Between a claimed frame and a durable chunk."""

import time
from pathlib import Path

from kvstored.format.geometry import ChunkGeometry, class_bytes
from kvstored.format.identity import ChunkId
from kvstored.store.writer import SealedChunk
from kvstored.tiers.requests import NewChunk, PutOutcome
from kvstored_contract.reasons import Reason
from tests.support.stores import LAYOUT, NAMESPACE, forget_dram, key, open_store, put_durable


def never() -> SealedChunk:
    raise AssertionError("a stored chunk is not written again")


def test_who_waits_for_a_chunk_that_was_committed_meanwhile_hears_that_it_is_stored(
    tmp_path: Path,
) -> None:
    """Bug: it was told that the time was over for a chunk that is durable."""
    with open_store(tmp_path) as opened:
        opened.fill(1)
        put_durable(opened, [1])
        forget_dram(opened, [1])
        used_bytes = opened.store.stats().dram_used_bytes
        chunk = ChunkId(NAMESPACE, key(1))
        claim = opened.store._dram.claim(
            chunk,
            layout_id=LAYOUT.layout_id,
            geometry=ChunkGeometry.of(LAYOUT, 1),
            class_bytes=class_bytes(LAYOUT),
            deadline=0,
        )
        assert claim is not None
        ticket = opened.store._put_path._stager.stage(
            claim.frame,
            NewChunk(key(1), b"", LAYOUT.chunk_tokens, 0),
            deadline=time.monotonic(),
            seal=never,
        )
        assert ticket.outcome is PutOutcome.EXISTED
        assert claim.frame.durable.result() is Reason.UNSPECIFIED
        assert not opened.store._dram.contains(chunk)
        assert opened.store.stats().dram_used_bytes == used_bytes
