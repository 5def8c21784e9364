from engine_adapters.vllm.orders import LoadEnd, LoadProgress, SaveOrder, WorkerReport


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


def test_ends_of_all_workers_are_told() -> None:
    ours = WorkerReport(ends=(LoadEnd(load_id=1, loaded_blocks=2),))
    theirs = WorkerReport(ends=(LoadEnd(load_id=1, loaded_blocks=3),))
    assert [end.loaded_blocks for end in ours.joined(theirs).ends] == [2, 3]


def test_report_of_nothing_is_empty() -> None:
    assert WorkerReport().is_empty
    assert not WorkerReport(stored_keys={0: (b"a",)}).is_empty


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


def test_stored_keys_stay_with_their_rank() -> None:
    one = WorkerReport(stored_keys={0: (b"a",), 1: (b"b",)})
    other = WorkerReport(stored_keys={1: (b"c",)})
    assert one.joined(other).stored_keys == {0: (b"a",), 1: (b"b", b"c")}
