"""A sequence between what was appended and what is durable."""

from kvstored.format.sequence_record import SequenceRecord, SequenceTail
from kvstored.store.sequences.sequence_state import SequenceState

KEYS = tuple(bytes([number]) * 32 for number in range(1, 7))
TAIL = SequenceTail(key=b"t" * 32, token_count=7)
EMPTY = SequenceState(layout_id=b"l" * 32, chunk_tokens=16)


def test_a_record_and_back() -> None:
    record = SequenceRecord(layout_id=b"l" * 32, keys=KEYS[:2], dropped_chunks=3, tail=TAIL)
    state = SequenceState.of_record(record, 16)
    assert (state.length_tokens, state.durable_tokens, state.tail_tokens) == (39, 39, 7)
    assert state.record() == record
    assert SequenceState.of_record(SequenceRecord(layout_id=b"l" * 32), 16) == EMPTY


def test_tokens_of_an_unknown_layout_are_not_counted_and_its_record_stays() -> None:
    record = SequenceRecord(layout_id=b"l" * 32, keys=KEYS[:2], tail=TAIL)
    state = SequenceState.of_record(record, 0)
    assert (state.length_tokens, state.durable_tokens, state.tail_tokens) == (0, 0, 0)
    assert state.record() == record
    assert state.without_open_tail().record() == record


def test_keys_are_recorded_in_order_only() -> None:
    state = EMPTY.extended(50, KEYS[:3])
    assert (state.length_tokens, state.tail_tokens, state.durable_tokens) == (50, 2, 0)
    assert state.record().keys == ()
    behind = state.advanced({KEYS[0]})
    assert behind.record().keys == ()
    assert behind.advanced({KEYS[2]}).record().keys == KEYS[:2]
    assert behind.advanced(()).durable_tokens == 48


def test_a_flushed_tail_is_recorded_until_its_chunk_is_durable() -> None:
    flushed = EMPTY.extended(23, KEYS[:1]).advanced(()).with_flushed_tail(TAIL)
    assert (flushed.record().tail, flushed.durable_tokens) == (TAIL, 23)
    complete = flushed.extended(9, KEYS[1:2])
    assert (complete.record().tail, complete.durable_tokens) == (TAIL, 23)
    durable = complete.advanced(())
    assert (durable.record().tail, durable.durable_tokens) == (None, 32)


def test_a_tail_is_not_recorded_before_what_is_before_it() -> None:
    state = EMPTY.extended(23, KEYS[:1]).with_flushed_tail(TAIL)
    assert (state.record().tail, state.record().keys) == (None, ())


def test_the_end_of_a_stopped_sequence_may_be_appended_to() -> None:
    stopped = EMPTY.extended(3, ()).stopped()
    assert stopped.is_stopped
    assert not stopped.extended(1, ()).is_stopped


def test_an_open_tail_falls_back_to_what_was_flushed() -> None:
    state = EMPTY.extended(23, KEYS[:1]).with_flushed_tail(TAIL).extended(4, ())
    assert state.without_open_tail().length_tokens == 23
    assert state.extended(5 + 3, KEYS[1:2]).without_open_tail().length_tokens == 32
    assert EMPTY.extended(5, ()).without_open_tail().length_tokens == 0


def test_a_chunk_that_cannot_be_stored_ends_the_sequence() -> None:
    state = EMPTY.extended(70, KEYS[:4]).advanced({KEYS[2]})
    ended = state.ended_at(2)
    assert (ended.keys, ended.length_tokens, ended.is_stopped) == (KEYS[:2], 32, True)
    assert ended.durable_chunks == 2


def test_what_was_flushed_of_a_chunk_that_cannot_be_stored_is_left() -> None:
    state = EMPTY.extended(23, KEYS[:1]).advanced(()).with_flushed_tail(TAIL)
    ended = state.extended(30, KEYS[1:3]).ended_at(1)
    assert (ended.length_tokens, ended.durable_tokens) == (23, 23)
    assert ended.record().tail == TAIL


def test_a_cut_forgets_a_flushed_tail_that_is_longer() -> None:
    state = EMPTY.extended(23, KEYS[:1]).advanced(()).with_flushed_tail(TAIL)
    assert state.cut(1, 7).record().tail == TAIL
    assert state.cut(1, 6).record().tail is None
    assert state.cut(0).flushed is None


def test_a_sequence_grows_from_the_chunk_before() -> None:
    first = EMPTY.extended(40, KEYS[:2])
    assert first.grown_keys(EMPTY) == ()
    stored = first.advanced(())
    assert stored.grown_keys(first) == KEYS[:2]
    flushed = stored.with_flushed_tail(TAIL)
    assert flushed.grown_keys(stored) == (KEYS[1], TAIL.key)
    assert flushed.grown_keys(flushed) == ()
    longer = flushed.extended(24, KEYS[2:4]).advanced(())
    assert longer.grown_keys(flushed) == KEYS[1:4]
    assert longer.cut(1).grown_keys(longer) == ()
    assert EMPTY.extended(7, ()).with_flushed_tail(TAIL).grown_keys(EMPTY) == (TAIL.key,)


def test_a_tail_is_flushed_while_all_of_the_sequence_is_durable() -> None:
    flushed = EMPTY.extended(23, KEYS[:1]).advanced(()).with_flushed_tail(TAIL)
    assert flushed.is_flushed
    assert not flushed.extended(1, ()).is_flushed
    assert not flushed.extended(9, KEYS[1:2]).is_flushed
    assert not EMPTY.extended(23, KEYS[:1]).with_flushed_tail(TAIL).is_flushed
    assert not EMPTY.extended(16, KEYS[:1]).advanced(()).is_flushed
