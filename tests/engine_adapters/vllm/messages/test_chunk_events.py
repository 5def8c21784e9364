import pytest

from engine_adapters.vllm.messages.chunk_events import (
    HASHES_PER_EVENT_MAX,
    BlockEvent,
    ChunkEvents,
    RemovedBlocks,
    StoredBlocks,
)
from engine_adapters.vllm.messages.chunk_note import ChunkNote

PLAIN, PIRATE, UNKNOWN = b"plain", b"pirate", b"unknown"


def chain_key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def part(number: int, rank: int = 0) -> bytes:
    return chain_key(number) + b"/%d" % rank


def note(number: int, *, scope: bytes = PLAIN, blocks: int = 2) -> ChunkNote:
    """Of a chunk that follows the one with the number before; number 0 is the first."""
    return ChunkNote(
        scope=scope,
        chain_key=chain_key(number),
        parent_key=chain_key(number - 1) if number else b"",
        block_hashes=tuple(b"%d.%d" % (number, block) for block in range(blocks)),
        token_ids=tuple(range(number * 8, number * 8 + 8)),
    )


def told(number: int, *, adapter_name: str = "") -> StoredBlocks:
    return StoredBlocks(
        block_hashes=note(number).block_hashes,
        parent_hash=b"%d.1" % (number - 1) if number else b"",
        token_ids=note(number).token_ids,
        adapter_name=adapter_name,
    )


def gone(number: int) -> RemovedBlocks:
    return RemovedBlocks(note(number).block_hashes)


def events_of(*, ranks: int = 1, chunks_max: int = 100) -> ChunkEvents:
    events = ChunkEvents(
        lambda key: tuple(key + b"/%d" % rank for rank in range(ranks)), chunks_max=chunks_max
    )
    events.know(PLAIN, "")
    return events


def test_blocks_are_told_with_their_tokens_and_the_block_before() -> None:
    """Bug: a chunk of several blocks was announced as one, which routers drop."""
    events = events_of()
    for number in (0, 1):
        events.stored(part(number), note(number))
    assert events.take() == [told(0), told(1)]
    assert events.take() == []
    assert events.is_told(chain_key(1))


def test_chunk_is_told_once() -> None:
    events = events_of()
    for _ in range(2):
        events.stored(part(0), note(0))
    assert events.take() == [told(0)]


def test_chunk_is_told_when_all_ranks_have_stored_their_part() -> None:
    events = events_of(ranks=2)
    for _ in range(2):
        events.stored(part(0, 0), note(0))
    assert events.take() == []
    assert not events.is_told(chain_key(0))
    events.stored(part(0, 1), note(0))
    assert events.take() == [told(0)]


def test_part_that_is_gone_takes_the_chunk_back_until_it_is_stored_anew() -> None:
    events = events_of(ranks=2)
    for rank in (0, 1):
        events.stored(part(0, rank), note(0))
    events.removed(part(0, 1))
    events.removed(part(0, 1))
    assert events.take() == [told(0), gone(0)]
    events.stored(part(0, 1), note(0))
    assert events.take() == [told(0)]
    for rank in (0, 1):
        events.removed(part(0, rank))
    assert events.take() == [gone(0)]
    assert events.keys == []


def test_part_that_is_gone_before_the_others_come_is_missing() -> None:
    """Else a chunk would be announced with its last part, though another part was evicted."""
    events = events_of(ranks=3)
    for rank in (0, 1):
        events.stored(part(0, rank), note(0))
    events.removed(part(0, 0))
    events.stored(part(0, 2), note(0))
    assert events.take() == []


def test_what_this_engine_could_not_use_is_not_told() -> None:
    events = events_of()
    events.stored(part(0), note(0, scope=UNKNOWN))
    events.stored(part(0, rank=7), note(0))
    events.removed(part(0))
    assert events.take() == []
    assert events.keys == []


def test_chunk_of_an_adapter_is_told_with_its_name() -> None:
    events = events_of()
    events.know(PIRATE, "pirate")
    events.stored(part(0), note(0, scope=PIRATE))
    assert events.take() == [told(0, adapter_name="pirate")]


@pytest.mark.parametrize("was_told", [True, False])
def test_chunk_whose_parent_is_not_told_is_left_out(was_told: bool) -> None:
    """A router would not know where it belongs; the chunk is announced when it is found with it."""
    events = events_of(ranks=1 if was_told else 2)
    events.stored(part(0), note(0))
    if was_told:
        events.removed(part(0))
    events.take()
    for rank in (0, 1):
        events.stored(part(1, rank), note(1))
    assert events.take() == []
    assert part(1) not in events.keys


def test_everything_is_taken_back_at_once() -> None:
    events = events_of()
    for number in (0, 1):
        events.stored(part(number), note(number))
    events.take()
    events.withdraw()
    assert events.take() == [RemovedBlocks(gone(0).block_hashes + gone(1).block_hashes)]
    events.withdraw()
    assert events.take() == []
    events.stored(part(0), note(0))
    assert events.take() == [told(0)]


def test_events_have_a_bounded_number_of_hashes() -> None:
    events = events_of()
    events.stored(part(0), note(0, blocks=HASHES_PER_EVENT_MAX + 1))
    events.take()
    events.withdraw()
    assert [len(event.block_hashes) for event in events.take()] == [HASHES_PER_EVENT_MAX, 1]


def test_chunk_that_is_not_watched_any_more_is_taken_back() -> None:
    """Nobody would hear that it is gone: the announced are watched, and that is bounded."""
    events = events_of(chunks_max=2)
    seen: list[BlockEvent] = []
    for number in range(3):
        events.stored(part(number), note(number))
        seen += events.take()
    assert seen == [told(0), told(1), gone(0), told(2)]
    assert set(events.keys) == {part(1), part(2)}


def test_bounded_memory_counts_chunks_that_are_not_whole() -> None:
    events = events_of(ranks=2, chunks_max=1)
    for number in range(2):
        events.stored(part(number), note(number))
    assert len(events.keys) == 2
    assert events.take() == []
