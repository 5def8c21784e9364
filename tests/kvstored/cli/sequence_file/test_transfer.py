"""What is said of chunks that could not be read."""

import pytest

from kvstored.cli.errors import CommandError
from kvstored.cli.sequence_file.transfer import stored_chunks
from kvstored_client import (
    LayerState,
    NewChunk,
    Placement,
    SliceState,
    StateKind,
    StateLayout,
)
from kvstored_client.testing import MemoryClient, MemoryStore

LAYOUT = StateLayout(
    model="m", dtype="float32", layers=(LayerState(StateKind.KV, 1024),), chunk_tokens=16
)
KEYS = [bytes([number]) * 32 for number in range(2)]


def test_a_chunk_that_came_late_was_called_lost() -> None:
    """Bug: the advice was to cut off what was stored."""
    with MemoryClient(MemoryStore(), strict=True) as client:
        region = client.allocate(Placement.contiguous_bytes(LAYOUT, len(KEYS)))
        assert region is not None
        with region:
            client.put(
                LAYOUT,
                [NewChunk(key=key, token_count=16) for key in KEYS],
                Placement.contiguous(region, LAYOUT),
            )
        client.store.faults.lost_slices = {(KEYS[1], 0)}
        client.store.faults.lost_as = SliceState.LATE
        with pytest.raises(CommandError, match="export the sequence again"):
            list(stored_chunks(client, LAYOUT, KEYS))
        client.delete(KEYS[1:])
        with pytest.raises(CommandError, match="not stored any more; cut"):
            list(stored_chunks(client, LAYOUT, KEYS))
