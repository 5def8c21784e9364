from engine_adapters.vllm.orders import LoadEnd, LoadProgress, WorkerReport


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


def test_ends_and_keys_of_all_workers_are_told() -> None:
    ours = WorkerReport(ends=(LoadEnd(load_id=1, loaded_blocks=2),), stored_keys=(b"a",))
    theirs = WorkerReport(ends=(LoadEnd(load_id=1, loaded_blocks=3),), stored_keys=(b"b",))
    joined = ours.joined(theirs)
    assert [end.loaded_blocks for end in joined.ends] == [2, 3]
    assert joined.stored_keys == (b"a", b"b")


def test_report_of_nothing_is_empty() -> None:
    assert WorkerReport().is_empty
    assert not WorkerReport(stored_keys=(b"a",)).is_empty
