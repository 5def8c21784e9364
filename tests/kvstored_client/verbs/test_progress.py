import signal
import threading
import time
from collections.abc import Iterator

import pytest

from kvstored_client.verbs.held_board import HeldBoard
from kvstored_client.verbs.progress import ReadProgress
from kvstored_contract.board import BoardWord, SliceState
from tests.kvstored_client.board_side import CHUNKS, LAYERS, Side, open_side


@pytest.fixture
def side() -> Iterator[Side]:
    with open_side() as side:
        yield side


def test_the_board_is_zeroed_before_the_call(side: Side) -> None:
    assert not side.board.words.any()
    assert not side.board.states.any()
    assert side.progress.state(2, 1) is SliceState.PENDING
    assert not side.progress.finished


def test_a_chunk_is_resident_with_its_last_layer(side: Side) -> None:
    side.board.states[1, 0] = SliceState.RESIDENT
    assert side.progress.is_resident(1, 0)
    assert not side.progress.is_resident(1)
    assert not side.progress.is_chunk_settled(1)
    side.board.states[1, 1] = SliceState.RESIDENT
    assert side.progress.is_resident(1)
    assert side.progress.is_chunk_settled(1)
    assert side.progress.report().resident == (False, True, False)
    assert side.progress.report().resident_prefix == 0


def test_one_missing_slice_settles_its_chunk(side: Side) -> None:
    side.board.states[0, 1] = SliceState.MISSING
    assert side.progress.is_chunk_settled(0)
    assert side.progress.is_chunk_settled(0, 1)
    assert not side.progress.is_chunk_settled(0, 0)
    assert not side.progress.is_resident(0)


def test_a_layer_is_settled_when_all_its_chunks_are(side: Side) -> None:
    side.board.states[:2, 1] = SliceState.RESIDENT
    assert not side.progress.is_layer_settled(1)
    side.board.states[2, 1] = SliceState.LATE
    assert side.progress.is_layer_settled(1)
    assert not side.progress.is_layer_resident(1)
    side.board.states[2, 1] = SliceState.RESIDENT
    assert side.progress.is_layer_resident(1)
    assert not side.progress.is_layer_settled(0)


def test_the_leading_chunks_of_a_layer_count_until_one_is_missing(side: Side) -> None:
    assert side.progress.resident_chunks(1) == 0
    side.board.states[0, 1] = side.board.states[2, 1] = SliceState.RESIDENT
    assert side.progress.resident_chunks(1) == 1
    assert side.progress.resident_chunks(0) == 0
    side.board.states[1, 1] = SliceState.LATE
    assert side.progress.resident_chunks(1) == 1
    side.board.states[1, 1] = SliceState.RESIDENT
    assert side.progress.resident_chunks(1) == CHUNKS
    with pytest.raises(IndexError, match="layer 2"):
        side.progress.resident_chunks(LAYERS)


def test_a_settled_read_keeps_its_outcome_and_frees_its_board(side: Side) -> None:
    side.progress.board.settle()
    assert side.arena.free_bytes == 4096
    side.board.states[:2] = SliceState.RESIDENT
    side.board.states[2] = SliceState.MISSING
    side.board.words[BoardWord.DEVICE_BYTES] = 10
    side.board.words[BoardWord.DRAM_BYTES] = 20
    side.board.words[BoardWord.FINISHED] = 1
    side.progress.board.settle()
    side.progress.board.settle()
    assert side.arena.free_bytes == 8192
    side.memory[:] = b"\x01" * 8192
    report = side.progress.report()
    assert report.resident == (True, True, False)
    assert (report.resident_prefix, report.device_bytes, report.dram_bytes) == (2, 10, 20)
    assert report.finished
    assert side.progress.state(2, 0) is SliceState.MISSING


def test_the_death_of_the_daemon_makes_pending_slices_missing(side: Side) -> None:
    side.board.states[0] = SliceState.RESIDENT
    side.board.states[1, 0] = SliceState.SKIPPED
    side.daemon_socket.close()
    assert side.progress.finished
    assert side.progress.is_resident(0)
    assert side.progress.state(1, 0) is SliceState.SKIPPED
    assert side.progress.state(1, 1) is SliceState.MISSING
    assert side.progress.is_layer_settled(0)
    # What a dying daemon still writes changes nothing any more.
    side.board.states[:] = SliceState.RESIDENT
    assert side.progress.report().resident == (True, False, False)


def test_the_engine_writes_pointer_and_cancel(side: Side) -> None:
    side.progress.board.advance(2)
    side.progress.board.cancel()
    assert side.board.words[BoardWord.POINTER] == 2
    assert side.board.words[BoardWord.CANCEL] == 1


def test_a_daemon_that_does_not_finish_in_time_is_given_up() -> None:
    with open_side(limit_s=-1) as side:
        assert side.progress.deadline(None) == side.progress.limit
        assert side.progress.deadline(60) == side.progress.limit
        side.progress.give_up_when_overdue()
        assert side.presence.lost
        assert side.progress.is_finished()
        assert side.daemon_socket.recv(1) == b""
        side.daemon_socket.close()


def test_a_read_within_its_limit_is_not_given_up(side: Side) -> None:
    assert side.progress.deadline(1) < side.progress.limit
    side.progress.give_up_when_overdue()
    assert not side.presence.lost


def test_a_read_that_found_nothing() -> None:
    progress = ReadProgress(HeldBoard.missing(chunk_count=2, layer_count=1))
    assert progress.finished
    assert progress.report().resident == (False, False)
    progress.board.cancel()
    progress.give_up_when_overdue()
    progress.board.settle()
    nothing = ReadProgress(HeldBoard.missing(chunk_count=0, layer_count=4))
    assert nothing.report().resident_prefix == 0


@pytest.mark.parametrize(("chunk", "layer"), [(-1, 0), (CHUNKS, 0), (0, LAYERS), (0, -1)])
def test_slices_outside_the_read(side: Side, chunk: int, layer: int) -> None:
    with pytest.raises(IndexError, match="is outside a read of"):
        side.progress.state(chunk, layer)
    with pytest.raises(IndexError, match="is outside a read of"):
        side.progress.is_resident(chunk, layer)


def test_the_length_of_an_encoded_slice_is_known_once_it_is_resident() -> None:
    with open_side(has_lengths=True) as side:
        assert side.board.lengths is not None
        side.board.lengths[1, 1] = 700
        assert side.progress.slice_bytes(1, 1) is None
        side.board.states[1, 1] = SliceState.RESIDENT
        side.board.states[0, 0] = SliceState.MISSING
        assert side.progress.slice_bytes(1, 1) == 700
        assert side.progress.slice_bytes(0, 0) is None
        with pytest.raises(IndexError):
            side.progress.slice_bytes(CHUNKS, 0)
        side.board.words[BoardWord.FINISHED] = 1
        side.progress.board.settle()
        assert side.progress.slice_bytes(1, 1) == 700


def test_lengths_are_kept_when_the_daemon_dies() -> None:
    with open_side(has_lengths=True) as side:
        assert side.board.lengths is not None
        side.board.lengths[2, 0] = 9
        side.board.states[2, 0] = SliceState.RESIDENT
        side.presence.end()
        assert side.progress.is_finished()
        side.board.lengths[:] = 0
        assert side.progress.slice_bytes(2, 0) == 9


def test_a_raw_slice_has_no_length_of_its_own(side: Side) -> None:
    side.board.states[1, 1] = SliceState.RESIDENT
    assert side.progress.slice_bytes(1, 1) is None


class InterruptError(Exception):
    """What a signal raises."""


def poll(progress: ReadProgress, polling: threading.Event) -> None:
    polling.set()
    while True:
        progress.is_resident(1)


def interrupt_after(polling: threading.Event, delay_s: float, thread_id: int) -> None:
    polling.wait()
    time.sleep(delay_s)
    signal.pthread_kill(thread_id, signal.SIGUSR1)


def test_an_interrupted_look_left_nobody_able_to_look_again(side: Side) -> None:
    """Bug: after Ctrl-C in the midst of a poll the end of the read waited for ever."""

    def interrupt(*_: object) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for number in range(100):
            polling = threading.Event()
            arguments = (polling, 0.001 + number * 1e-6, threading.get_ident())
            interruption = threading.Thread(target=interrupt_after, args=arguments)
            interruption.start()
            with pytest.raises(InterruptError):
                poll(side.progress, polling)
            interruption.join()
            assert not side.progress.board.lock.locked()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not side.progress.is_finished()
