"""Hints of a whole store: what they keep in DRAM and on the devices."""

from collections.abc import Iterable
from pathlib import Path
from unittest.mock import Mock

import pytest

from kvstored.format.identity import ChunkId
from kvstored.tiers.hints import hints as hints_module
from kvstored.tiers.hints.queue_change import NamedEntry, QueueChange
from kvstored.tiers.sequences.sequences import Caller
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.stores import (
    LAYOUT,
    MIB,
    NAMESPACE,
    StoreUnderTest,
    key,
    open_store,
    put_durable,
)

LARGE = StateLayout(
    model="large", dtype="float32", layers=(LayerState(StateKind.KV, 1024),) * 4, chunk_tokens=16
)
"""Slices of 16 KiB: 15 chunks in a slab."""
ME = Caller(NAMESPACE, 1)
OTHER = Caller(NAMESPACE, 2)


def hint(
    opened: StoreUnderTest,
    entries: dict[str, list[int]],
    left: tuple[str, ...] = (),
    *,
    caller: Caller = ME,
    versions: tuple[int, int] = (1, 0),
) -> tuple[bool, tuple[str, ...]]:
    """Hints chunks by number, in the order of the names; without numbers those of a sequence."""
    answer = opened.store.hints.hint(
        caller,
        QueueChange(
            version=versions[0],
            previous_version=versions[1],
            entered=tuple(
                NamedEntry(
                    name=name,
                    place=place,
                    keys=tuple(map(key, numbers)),
                    layout_id=LAYOUT.layout_id,
                )
                for place, (name, numbers) in enumerate(entries.items())
            ),
            left=left,
            layouts={LAYOUT.layout_id: LAYOUT},
        ),
    )
    return answer.is_taken, answer.ignored


def stored(opened: StoreUnderTest, numbers: Iterable[int]) -> list[int]:
    """Those of the chunks that are on the devices."""
    chunks = [ChunkId(NAMESPACE, key(number)) for number in numbers]
    found = opened.store.read_path.are_visible(chunks)
    return [number for number, is_stored in zip(numbers, found, strict=True) if is_stored]


def in_dram(opened: StoreUnderTest, numbers: Iterable[int]) -> list[int]:
    dram = opened.store._dram
    return [number for number in numbers if dram.contains(ChunkId(NAMESPACE, key(number)))]


def test_what_waits_stays_and_the_rest_goes(tmp_path: Path) -> None:
    with open_store(tmp_path, device_count=1, slabs_per_device=3) as opened:
        put_durable(opened, list(range(30)))
        assert hint(opened, {"a": [0, 1], "b": [2, 3, 4]}) == (True, ())
        for first in range(30, 200, 10):
            put_durable(opened, list(range(first, first + 10)))
        for found in (stored(opened, range(200)), in_dram(opened, range(200))):
            assert found[:5] == [0, 1, 2, 3, 4]
            assert found[5] > 30


def test_without_hints_the_oldest_goes(tmp_path: Path) -> None:
    with open_store(tmp_path, device_count=1, slabs_per_device=3) as opened:
        for first in range(0, 200, 10):
            put_durable(opened, list(range(first, first + 10)))
        assert stored(opened, range(5)) == []


def test_what_waits_no_longer_goes_as_one_that_was_used(tmp_path: Path) -> None:
    with open_store(tmp_path, device_count=1, slabs_per_device=3) as opened:
        put_durable(opened, list(range(10)))
        hint(opened, {"a": [0, 1]})
        opened.store.hints.end_session(1)
        for first in range(10, 300, 10):
            put_durable(opened, list(range(first, first + 10)))
        assert stored(opened, range(10)) == []


def test_a_sequence_is_hinted_by_its_name(opened: StoreUnderTest) -> None:
    store = opened.store
    put_durable(opened, [0, 1, 2])
    store.sequences.create(ME, "talk", LAYOUT, keys=[key(0), key(1)])
    store.sequences.create(ME, "mine", LAYOUT, keys=[key(2)], is_ephemeral=True)
    assert hint(opened, {"talk": [], "mine": [], "none": []}) == (True, ("none",))
    queued = [ChunkId(NAMESPACE, key(number)) for number in range(4)]
    assert [store._dram.hints.is_queued(one) for one in queued] == [True, True, True, False]
    assert opened.stats().waiting_request_count == 2
    assert hint(opened, {"mine": []}, caller=OTHER) == (True, ("mine",))
    store.hints.end_session(1)
    assert opened.stats().waiting_request_count == 0


def test_the_flushed_tail_of_a_sequence_waits_too(opened_rows: StoreUnderTest) -> None:
    from tests.support.appends import ROWS, TOKENS, append, create, flush

    create(opened_rows, "a")
    append(opened_rows, {"a": range(23)})
    flush(opened_rows, "a", 23)
    assert hint(opened_rows, {"a": []}) == (True, ())
    tail = ChunkId(NAMESPACE, ROWS.tail_key(TOKENS[:23]))
    assert opened_rows.store._dram.hints.is_queued(tail)


def test_a_sequence_that_is_gone_waits_no_more(opened: StoreUnderTest) -> None:
    put_durable(opened, [0])
    opened.store.sequences.create(ME, "talk", LAYOUT, keys=[key(0)])
    hint(opened, {"talk": []})
    opened.store.sequences.delete(ME, "talk")
    assert hint(opened, {"talk": []}, versions=(2, 1)) == (True, ("talk",))
    assert not opened.store._dram.hints.is_queued(ChunkId(NAMESPACE, key(0)))


def test_outdated_hints_are_counted(opened: StoreUnderTest) -> None:
    hint(opened, {"a": [0]}, versions=(3, 0))
    assert hint(opened, {"a": [0]}, versions=(2, 0)) == (False, ())
    counters = opened.stats().counters
    assert (counters["hints_taken"], counters["hints_outdated"]) == (1, 1)


def test_chunks_of_a_layout_that_nobody_knows_are_not_waited_for(opened: StoreUnderTest) -> None:
    change = QueueChange(
        version=1,
        previous_version=0,
        entered=(NamedEntry(name="a", place=1, keys=(key(0),), layout_id=b"?" * 32),),
    )
    assert opened.store.hints.hint(ME, change).ignored == ("a",)


def test_no_more_is_looked_up_than_may_wait(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints_module, "HINTED_CHUNKS_PER_SESSION_MAX", 1)
    assert hint(opened, {"a": [0, 1], "b": [2]}) == (True, ("b",))


def entry(name: str, numbers: list[int], layout_id: bytes = LAYOUT.layout_id) -> NamedEntry:
    return NamedEntry(name=name, place=1, keys=tuple(map(key, numbers)), layout_id=layout_id)


def whole_queue(*entries: NamedEntry) -> QueueChange:
    return QueueChange(
        version=1, previous_version=0, entered=entries, layouts={LAYOUT.layout_id: LAYOUT}
    )


def test_a_name_that_is_known_when_it_is_named_again_is_not_ignored(
    opened: StoreUnderTest,
) -> None:
    """Bug: the answer named it as ignored, for what was said first, while it waited."""
    unknown, known = entry("a", [0], b"?" * 32), entry("a", [0])
    assert opened.store.hints.hint(ME, whole_queue(unknown, known)).ignored == ()
    assert opened.stats().waiting_request_count == 1
    answer = opened.store.hints.hint(OTHER, whole_queue(known, unknown, unknown))
    assert answer.ignored == ("a",)
    assert opened.stats().waiting_request_count == 1


def test_chunks_of_a_name_that_is_named_again_count_once(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: what was said first took the room of others, although it did not count."""
    monkeypatch.setattr(hints_module, "HINTED_CHUNKS_PER_SESSION_MAX", 2)
    entries = [entry("a", [0, 1]), entry("a", [2]), entry("b", [3])]
    assert opened.store.hints.hint(ME, whole_queue(*entries)).ignored == ()


@pytest.mark.parametrize("is_hinted", [True, False])
def test_a_slab_with_chunks_that_wait_is_not_emptied_for_another_class(
    tmp_path: Path, is_hinted: bool
) -> None:
    """Bug: a whole slab of DRAM went for a class whose own chunks were newer, queue or not."""
    with open_store(tmp_path, dram_bytes=2 * MIB, slabs_per_device=8) as opened:
        waiting = list(range(28))
        put_durable(opened, waiting)
        if is_hinted:
            hint(opened, {"a": waiting})
        for first in range(100, 140, 5):
            for ticket in opened.put(list(range(first, first + 5)), layout=LARGE):
                assert ticket.durable is not None
                assert ticket.durable.result() is Reason.UNSPECIFIED
        assert in_dram(opened, range(28)) == (waiting if is_hinted else [])


def test_chunks_of_a_session_that_ended_were_fetched_on(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: nobody heard that its queue was gone."""
    heard = Mock()
    monkeypatch.setattr(opened.store.hints, "_on_change", heard)
    hint(opened, {"a": [0]})
    heard.reset_mock()
    opened.store.hints.end_session(1)
    heard.assert_called_once_with()
