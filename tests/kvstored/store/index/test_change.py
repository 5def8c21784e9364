import itertools
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kvstored.format.sequence_record import SequenceRecord
from kvstored.store.index.index import Index, IndexChange, IndexMeta
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.kvstored.store.index_stores import (
    LAYOUT_ID,
    MAP_BYTES,
    NAMESPACE_ID,
    SET_ID,
    chunk_id,
    extent_at,
    record_at,
)

chunks = st.integers(0, 2).map(chunk_id)
extents = st.integers(0, 2).map(extent_at)
records = st.builds(record_at, extents, stamp=st.integers(1, 2))
entries = st.tuples(chunks, records)
layouts = st.builds(
    StateLayout,
    model=st.sampled_from(["a", "b"]),
    dtype=st.just("float32"),
    layers=st.just((LayerState(StateKind.KV, 8),)),
)
names = st.tuples(st.just(NAMESPACE_ID), st.sampled_from(["one", "two"]))
sequences = st.builds(
    SequenceRecord, layout_id=st.just(LAYOUT_ID), keys=st.just(()), dropped_chunks=st.integers(0, 3)
)


def few(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(strategy, max_size=2).map(tuple)


changes = st.builds(
    IndexChange,
    deletes=few(chunks),
    quarantines=few(entries),
    releases=few(extents),
    puts=few(entries),
    layouts=few(layouts),
    sequence_deletes=few(names),
    sequence_puts=few(st.builds(lambda name, record: (*name, record), names, sequences)),
    meta=st.none()
    | st.builds(IndexMeta, set_id=st.just(SET_ID), epoch=st.integers(0, 3), clean=st.booleans()),
)


def content(path: Path, steps: list[IndexChange]) -> list[object]:
    """Everything that an index holds after ``steps``."""
    index = Index.open(path, map_bytes=MAP_BYTES)
    try:
        for step in steps:
            index.apply(step)
        return [
            list(index.walks.records()),
            list(index.walks.quarantined()),
            [
                (name, index.sequence(NAMESPACE_ID, name))
                for name in index.walks.sequences(NAMESPACE_ID)
            ],
            index.meta(),
            sum(index.usage.entry_count(table) for table in index._tables.handles),
        ]
    finally:
        index.close()


@settings(max_examples=60)
@given(st.lists(changes, max_size=4))
def test_merged_change_has_the_effect_of_its_parts_in_order(parts: list[IndexChange]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one_by_one = content(Path(folder, "parts"), parts)
        at_once = content(Path(folder, "merged"), [IndexChange.merged(parts)])
    assert at_once == one_by_one


def test_merging_nothing_changes_nothing() -> None:
    assert IndexChange.merged([]) == IndexChange()


def test_every_order_of_put_quarantine_and_delete_merges(tmp_path: Path) -> None:
    record = record_at(extent_at(0))
    operations = [
        IndexChange(puts=((chunk_id(1), record),)),
        IndexChange(quarantines=((chunk_id(1), record),)),
        IndexChange(deletes=(chunk_id(1),)),
        IndexChange(releases=(record.extent,)),
    ]
    for number, order in enumerate(itertools.permutations(operations)):
        parts = content(tmp_path / f"{number}-parts", list(order))
        assert content(tmp_path / f"{number}-merged", [IndexChange.merged(order)]) == parts
