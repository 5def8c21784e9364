from engine_adapters.vllm.chunk_events import PENDING_MAX, ChunkEvents, LostChunk, StoredChunk


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def test_stored_chunk_is_told_with_its_tokens_and_parent() -> None:
    events = ChunkEvents(1)
    events.ordered([key(1), key(2)], key(0), [10, 11, 12, 13])
    events.stored([key(2)], rank=0)
    assert events.take() == [StoredChunk(chain_key=key(2), parent_key=key(1), token_ids=(12, 13))]
    assert events.take() == []


def test_stored_chunk_is_told_with_its_adapter() -> None:
    """Bug: who routes by tokens took it for a chunk of the model without LoRA weights."""
    events = ChunkEvents(1)
    events.ordered([key(1)], b"", [10], adapter_name="pirate")
    events.stored([key(1)], rank=0)
    assert [event.adapter_name for event in events.take() if isinstance(event, StoredChunk)] == [
        "pirate"
    ]


def test_chunk_that_was_dropped_is_not_told() -> None:
    events = ChunkEvents(1)
    events.ordered([key(1)], b"", [10])
    assert events.take() == []


def test_chunk_is_told_once_when_all_ranks_have_stored_their_part() -> None:
    """Bug: it was told with the first part, when no other engine could restore it yet."""
    events = ChunkEvents(2)
    events.ordered([key(1)], b"", [10])
    events.stored([key(1)], rank=0)
    assert events.take() == []
    events.stored([key(1)], rank=1)
    assert len(events.take()) == 1
    events.stored([key(1)], rank=1)
    assert events.take() == []


def test_rank_that_stores_a_chunk_twice_is_one() -> None:
    """Two requests with the same prompt save it both."""
    events = ChunkEvents(2)
    events.ordered([key(1)], b"", [10])
    events.ordered([key(1)], b"", [10])
    events.stored([key(1), key(1)], rank=0)
    assert events.take() == []
    events.stored([key(1)], rank=1)
    assert len(events.take()) == 1


def test_lost_chunk_is_told() -> None:
    events = ChunkEvents(1)
    events.lost(key(7))
    assert events.take() == [LostChunk(key(7))]


def test_memory_is_bounded() -> None:
    events = ChunkEvents(1)
    for number in range(PENDING_MAX + 1):
        events.ordered([key(number)], b"", [number])
    events.stored([key(0), key(1)], rank=0)
    assert [event.chain_key for event in events.take()] == [key(1)]
