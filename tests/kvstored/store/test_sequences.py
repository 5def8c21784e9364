import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.sequence_record import SequenceRecord
from kvstored.store import sequences
from kvstored.store.sequences import SequenceConflictError

LAYOUT_ID = b"l" * 32
keys = st.binary(min_size=32, max_size=32)
records = st.builds(
    SequenceRecord,
    layout_id=st.just(LAYOUT_ID),
    keys=st.lists(keys, max_size=10).map(tuple),
    dropped_chunks=st.integers(0, 100),
)
counts = st.integers(0, 12)


def test_created_sequence_is_empty() -> None:
    assert sequences.create(LAYOUT_ID) == SequenceRecord(layout_id=LAYOUT_ID)


@given(records, st.lists(keys, max_size=5))
def test_append_puts_keys_at_the_back(record: SequenceRecord, more: list[bytes]) -> None:
    grown = sequences.append(record, more, len(record.keys))
    assert grown.keys == record.keys + tuple(more)
    assert (grown.layout_id, grown.dropped_chunks) == (record.layout_id, record.dropped_chunks)


@given(records, st.integers(0, 20))
def test_append_refuses_any_other_expectation(record: SequenceRecord, expected: int) -> None:
    if expected != len(record.keys):
        with pytest.raises(SequenceConflictError, match=f"not the expected {expected}"):
            sequences.append(record, [], expected)


def test_append_refuses_a_sequence_that_would_become_too_long(monkeypatch) -> None:
    monkeypatch.setattr(sequences, "SEQUENCE_CHUNKS_MAX", 2)
    full = sequences.append(sequences.create(LAYOUT_ID), [b"a" * 32, b"b" * 32], 0)
    with pytest.raises(SequenceConflictError, match="at most 2 chunks"):
        sequences.append(full, [b"c" * 32], 2)


@given(records, counts)
def test_fork_keeps_the_front(record: SequenceRecord, keep: int) -> None:
    if keep > len(record.keys):
        with pytest.raises(SequenceConflictError, match=f"cannot keep {keep} chunks"):
            sequences.fork(record, keep)
        return
    fork = sequences.fork(record, keep)
    assert fork.keys == (record.keys[:keep] if keep else record.keys)
    assert fork.dropped_chunks == record.dropped_chunks


@given(records, counts)
def test_truncation_drops_at_the_named_end(record: SequenceRecord, drop: int) -> None:
    if drop > len(record.keys):
        for truncate in (sequences.truncate_front, sequences.truncate_back):
            with pytest.raises(SequenceConflictError, match=f"cannot drop {drop} chunks"):
                truncate(record, drop)
        return
    front = sequences.truncate_front(record, drop)
    back = sequences.truncate_back(record, drop)
    assert front.keys == record.keys[drop:]
    assert front.dropped_chunks == record.dropped_chunks + drop
    assert back.keys == record.keys[: len(record.keys) - drop]
    assert back.dropped_chunks == record.dropped_chunks


@pytest.mark.parametrize(
    "change", [sequences.truncate_front, sequences.truncate_back, sequences.fork]
)
def test_negative_counts_are_refused(change) -> None:
    record = SequenceRecord(layout_id=LAYOUT_ID, keys=(b"k" * 32,))
    with pytest.raises(SequenceConflictError):
        change(record, -1)
