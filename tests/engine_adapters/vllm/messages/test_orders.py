import pytest

from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.linked_span import LinkedSpan
from engine_adapters.vllm.messages.orders import (
    LoadEnd,
    LoadOrder,
    LoadProgress,
    SaveOrder,
    WorkerReport,
)

PREFIX = BlockSpan(first_block=0, block_ids=(1, 2), chunk_blocks=2)
LINKED = LinkedSpan(first_tokens=(5,), block_ids=(1, 2, 3), chunk_blocks=2, block_tokens=16)


@pytest.mark.parametrize(
    ("span", "overtaken", "is_from_end"),
    [(PREFIX, False, False), (PREFIX, True, True), (LINKED, True, False)],
)
def test_only_what_computing_comes_to_meet_begins_with_its_end(
    span: BlockSpan | LinkedSpan, overtaken: bool, is_from_end: bool
) -> None:
    order = LoadOrder(
        load_id=1, request_id="a", span=span, chain_keys=(bytes(32),), overtaken=overtaken
    )
    assert order.is_from_end is is_from_end
    assert order.is_linked is (span is LINKED)


def test_workers_have_what_the_slowest_has() -> None:
    ours = WorkerReport(progress={1: LoadProgress(first_loaded=3)})
    theirs = WorkerReport(
        progress={1: LoadProgress(first_loaded=5), 2: LoadProgress(first_loaded=0)}
    )
    joined = ours.joined(theirs)
    assert joined.progress == {
        1: LoadProgress(first_loaded=5, workers=2),
        2: LoadProgress(first_loaded=0, workers=1),
    }


def test_workers_have_of_a_linked_load_what_the_slowest_has() -> None:
    """It goes up."""
    ours = WorkerReport(progress={1: LoadProgress(first_loaded=3, goes_up=True)})
    theirs = WorkerReport(progress={1: LoadProgress(first_loaded=5, goes_up=True)})
    joined = ours.joined(theirs).joined(theirs)
    assert joined.progress == {1: LoadProgress(first_loaded=3, workers=3, goes_up=True)}


def test_ends_of_all_workers_are_told() -> None:
    ours = WorkerReport(ends=(LoadEnd(load_id=1, loaded_blocks=2),))
    theirs = WorkerReport(ends=(LoadEnd(load_id=1, loaded_blocks=3),))
    assert [end.loaded_blocks for end in ours.joined(theirs).ends] == [2, 3]


def test_refusals_of_all_workers_are_told() -> None:
    ours, theirs = WorkerReport(refusals={0: ""}), WorkerReport(refusals={1: "no"})
    assert not theirs.is_empty
    assert ours.joined(theirs).refusals == {0: "", 1: "no"}


def test_report_of_nothing_is_empty() -> None:
    assert WorkerReport().is_empty
    assert not WorkerReport(ends=(LoadEnd(load_id=1, loaded_blocks=2),)).is_empty


def test_save_takes_its_chunks_of_all_keys_and_blocks() -> None:
    keys = [bytes([chunk]) for chunk in range(4)]
    order = SaveOrder.of("a", range(1, 3), chain_keys=keys, block_ids=range(10, 18), chunk_blocks=2)
    assert order == SaveOrder(
        request_id="a",
        first_chunk=1,
        parent_key=keys[0],
        chain_keys=(keys[1], keys[2]),
        block_ids=(12, 13, 14, 15),
    )
    first = SaveOrder.of("a", range(1), chain_keys=keys, block_ids=range(10, 18), chunk_blocks=2)
    assert first.parent_key == b""
