import pytest

from kvstored.format.sequence_record import SequenceRecord, SequenceTail
from kvstored.store.sequences import rules
from kvstored.store.sequences.rules import SEQUENCE_CHUNKS_MAX, SequenceConflictError
from kvstored.store.sequences.sequence_state import SequenceState

LAYOUT_ID = b"l" * 32
CHUNK_TOKENS = 16
KEYS = tuple(bytes([number]) * 32 for number in range(1, 6))
TAIL = SequenceTail(key=b"t" * 32, token_count=7)


def talk(chunk_count: int = 5, tail_tokens: int = 0) -> SequenceState:
    return SequenceState(
        layout_id=LAYOUT_ID,
        chunk_tokens=CHUNK_TOKENS,
        keys=KEYS[:chunk_count],
        durable_chunks=chunk_count,
        tail_tokens=tail_tokens,
    )


def test_create_is_empty_or_begins_with_stored_chunks() -> None:
    empty = rules.create(LAYOUT_ID, CHUNK_TOKENS)
    assert empty == talk(0)
    assert empty.record() == SequenceRecord(layout_id=LAYOUT_ID)
    assert rules.create(LAYOUT_ID, CHUNK_TOKENS, KEYS[:2]) == talk(2)


def test_append_adds_stored_keys_in_order() -> None:
    assert rules.append(talk(2), KEYS[2:4], expected_chunks=2) == talk(4)


def test_keys_behind_a_chunk_on_its_way_are_not_recorded_before_it() -> None:
    state = talk(1).extended(CHUNK_TOKENS, (KEYS[1],))
    longer = rules.append(state, KEYS[2:3], expected_chunks=2)
    assert longer.record().keys == KEYS[:1]
    assert longer.advanced({KEYS[1]}).record().keys == KEYS[:1]
    assert longer.advanced(()).record().keys == KEYS[:3]


@pytest.mark.parametrize("expected", [0, 2, 6])
def test_append_refuses_another_length_than_expected(expected: int) -> None:
    with pytest.raises(SequenceConflictError, match="5 chunks, not the expected"):
        rules.append(talk(), [b"k" * 32], expected_chunks=expected)


def test_append_of_chunks_refuses_an_open_tail() -> None:
    with pytest.raises(SequenceConflictError, match="open tail of 3 tokens"):
        rules.append(talk(2, tail_tokens=3), KEYS[2:3], expected_chunks=2)


def test_append_of_chunks_refuses_a_tail_of_unknown_layout() -> None:
    """Bug: the record did not name the tail any more, which a flush had acknowledged."""
    record = SequenceRecord(layout_id=LAYOUT_ID, keys=KEYS[:2], tail=TAIL)
    with pytest.raises(SequenceConflictError, match="open tail of 7 tokens"):
        rules.append(SequenceState.of_record(record, 0), KEYS[2:3], expected_chunks=2)


def test_append_of_chunks_goes_behind_the_chunk_that_a_tail_became() -> None:
    state = talk(1, tail_tokens=7).with_flushed_tail(TAIL).extended(9, KEYS[1:2])
    assert rules.append(state, KEYS[2:3], expected_chunks=2).keys == KEYS[:3]


def test_append_refuses_too_many_chunks() -> None:
    full = rules.append(talk(0), [b"k" * 32] * SEQUENCE_CHUNKS_MAX, expected_chunks=0)
    with pytest.raises(SequenceConflictError, match="at most"):
        rules.append(full, [b"k" * 32], expected_chunks=SEQUENCE_CHUNKS_MAX)


def test_check_length() -> None:
    rules.check_length(talk(2, tail_tokens=3), 35)
    with pytest.raises(SequenceConflictError, match="35 tokens, not the expected 34"):
        rules.check_length(talk(2, tail_tokens=3), 34)


@pytest.mark.parametrize("keep_chunks", range(1, 6))
def test_fork_keeps_the_front_and_leaves_the_original(keep_chunks: int) -> None:
    original = talk(tail_tokens=3)
    assert rules.fork(original, keep_chunks) == talk(keep_chunks)
    assert original == talk(tail_tokens=3)


def test_fork_without_a_count_keeps_all_and_the_tail() -> None:
    flushed = talk(tail_tokens=7).with_flushed_tail(TAIL)
    assert rules.fork(flushed, keep_chunks=0) == flushed


@pytest.mark.parametrize("drop_chunks", range(6))
def test_truncate_front_counts_what_it_drops_and_keeps_the_tail(drop_chunks: int) -> None:
    before = talk(tail_tokens=7).with_flushed_tail(TAIL)
    shorter = rules.truncate_front(before, drop_chunks)
    assert shorter.keys == KEYS[drop_chunks:]
    assert shorter.dropped_chunks == drop_chunks
    assert shorter.length_tokens == before.length_tokens - drop_chunks * CHUNK_TOKENS
    assert shorter.durable_tokens == shorter.length_tokens
    again = rules.truncate_front(shorter, len(shorter.keys))
    assert (again.keys, again.dropped_chunks, again.tail_tokens) == ((), 5, 7)
    assert again.record().tail == TAIL


def test_truncate_front_beyond_a_flushed_tail_forgets_it() -> None:
    before = talk(1, tail_tokens=7).with_flushed_tail(TAIL).extended(25, KEYS[1:3])
    assert before.durable_tail == TAIL
    shorter = rules.truncate_front(before, 2)
    assert (shorter.flushed, shorter.durable_chunks, shorter.keys) == (None, 0, KEYS[2:3])


@pytest.mark.parametrize("drop_chunks", range(1, 6))
def test_truncate_back_drops_the_tail_and_chunks(drop_chunks: int) -> None:
    before = talk(tail_tokens=7).with_flushed_tail(TAIL).stopped()
    shorter = rules.truncate_back(before, drop_chunks)
    assert shorter.record() == talk(5 - drop_chunks).record()
    assert shorter.length_tokens == shorter.durable_tokens == (5 - drop_chunks) * CHUNK_TOKENS
    assert not shorter.is_stopped


def test_truncate_back_of_nothing_changes_nothing() -> None:
    before = talk(tail_tokens=7)
    assert rules.truncate_back(before, 0) is before


@pytest.mark.parametrize("drop_tokens", range(2 * CHUNK_TOKENS + 7 + 1))
def test_truncate_tokens_leaves_the_rest(drop_tokens: int) -> None:
    before = talk(2, tail_tokens=7).with_flushed_tail(TAIL)
    shorter = rules.truncate_tokens(before, drop_tokens)
    assert shorter.length_tokens == before.length_tokens - drop_tokens
    assert shorter.keys == KEYS[: shorter.length_tokens // CHUNK_TOKENS]
    # A flushed tail that holds dropped tokens is none.
    assert shorter.durable_tokens <= shorter.length_tokens
    assert (shorter.record().tail == TAIL) == (drop_tokens == 0)


def test_truncate_tokens_keeps_a_flushed_tail_that_is_short_enough() -> None:
    longer = talk(2, tail_tokens=7).with_flushed_tail(TAIL).extended(5, ())
    assert rules.truncate_tokens(longer, 5).record().tail == TAIL
    assert rules.truncate_tokens(longer, 6).record().tail is None


@pytest.mark.parametrize("count", [-1, 6])
def test_counts_beyond_the_sequence_are_refused(count: int) -> None:
    with pytest.raises(SequenceConflictError, match="cannot keep"):
        rules.fork(talk(), count)
    with pytest.raises(SequenceConflictError, match="cannot drop"):
        rules.truncate_front(talk(), count)
    with pytest.raises(SequenceConflictError, match="cannot drop"):
        rules.truncate_back(talk(), count)
    with pytest.raises(SequenceConflictError, match="cannot drop 81 tokens"):
        rules.truncate_tokens(talk(), 81)


def test_operations_commute_with_dropping_at_the_front() -> None:
    one = rules.truncate_back(rules.truncate_front(talk(), 1), 1)
    other = rules.truncate_front(rules.truncate_back(talk(), 1), 1)
    assert one.keys == other.keys == KEYS[1:4]
    assert one.dropped_chunks == other.dropped_chunks == 1
