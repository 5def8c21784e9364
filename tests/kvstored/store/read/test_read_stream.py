"""One read's bookkeeping, driven by hand in every order of completions."""

from collections.abc import Callable

import numpy as np
import pytest

from kvstored.format.checksum import checksum
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import ExtentHeader, SliceSum, page_checksum
from kvstored.format.geometry import ChunkGeometry, Extent
from kvstored.format.identity import ChunkId
from kvstored.store.read import read_progress
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.read.landings import Landing
from kvstored.store.read.placement import Placement
from kvstored.store.read.plan import LayerRun
from kvstored.store.read.read_stream import ReadStream
from kvstored.store.read.read_task import ReadTarget, ReadTask, StreamOptions
from kvstored_contract.board import Board, BoardWord, SliceState, Watch, board_bytes
from tests.support.stores import NAMESPACE, key, new_board

SLICE = 4096
GEOMETRY = ChunkGeometry.of_slices((SLICE, SLICE, 0))
PAYLOAD = np.random.default_rng(1).bytes(2 * SLICE)
DEVICE_ID = b"d" * 16
HEADER_RUN = LayerRun.of(GEOMETRY, 0, 0, 1, with_header=True)
SECOND_RUN = LayerRun.of(GEOMETRY, 0, 1, 2, with_header=False)


def make_header(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "device_id": DEVICE_ID,
        "offset": 8192,
        "chunk": ChunkId(NAMESPACE, key(0)),
        "parent_key": b"",
        "layout_id": b"l" * 32,
        "class_bytes": GEOMETRY.extent_bytes,
        "epoch": 1,
        "stamp": 1,
        "token_count": 1,
        "slices": (
            SliceSum(SLICE, checksum(PAYLOAD[:SLICE])),
            SliceSum(SLICE, checksum(PAYLOAD[SLICE:])),
            SliceSum(0, 0),
        ),
    }
    return ExtentHeader(**{**fields, **changes}).encode()  # type: ignore[arg-type]


def board_with_lengths() -> Board:
    size = board_bytes(chunk_count=1, layer_count=3, has_lengths=True)
    return Board(memoryview(bytearray(size)), chunk_count=1, layer_count=3, has_lengths=True)


class Lab:
    """A stream over one chunk with three layers, the last of which stores nothing."""

    def __init__(
        self,
        header: bytes | None = None,
        *,
        window_bytes: int = 1 << 20,
        has_lengths: bool = False,
    ) -> None:
        self.header = make_header()
        source = StoredChunk(
            chunk=ChunkId(NAMESPACE, key(0)),
            record=ChunkRecord(
                extent=Extent(0, 8192, GEOMETRY.extent_bytes),
                layout_id=b"l" * 32,
                token_count=1,
                epoch=1,
                stamp=1,
                header_checksum=page_checksum(header or self.header),
            ),
            device_id=DEVICE_ID,
            geometry=GEOMETRY,
        )
        self.board: Board = board_with_lengths() if has_lengths else new_board(1, 3)
        self.damaged: list[StoredChunk] = []
        self.finished: list[ReadStream] = []
        self.released: list[LayerRun] = []
        self.notices = 0
        arena = memoryview(bytearray(len(PAYLOAD)))
        self.task = ReadTask(
            sources=(source,),
            target=ReadTarget(
                arena=arena,
                takes_transfers=False,
                placement=Placement(base=0, layer_stride=SLICE),
                board=self.board,
                notify=self.count_notice,
            ),
            options=StreamOptions(
                first_layer=0, layer_count=3, window_bytes=window_bytes, deadline=float("inf")
            ),
        )
        self.stream = ReadStream(
            self.task,
            {0: [HEADER_RUN, SECOND_RUN]},
            window_bytes=window_bytes,
            on_damage=self.damaged.append,
            on_finish=self.finished.append,
        )
        self.stream.begin()

    def count_notice(self) -> None:
        self.notices += 1

    def landing(self, run: LayerRun) -> Landing:
        start = GEOMETRY.slice_offsets[run.first_layer] - 4096
        payload = memoryview(bytearray(PAYLOAD))[start:]
        return Landing(
            run=run,
            fragments=self.task.fragments(run),
            payload=payload,
            release=lambda: self.released.append(run),
        )

    def land(self, run: LayerRun, header_page: bytes) -> None:
        self.stream.landed(self.landing(run), header_page)

    def fail(self, run: LayerRun) -> None:
        self.stream.failed(self.landing(run))

    @property
    def states(self) -> list[int]:
        return [int(state) for state in self.board.states[0]]


def test_runs_that_land_before_the_header_wait_for_it() -> None:
    lab = Lab()
    assert [lab.stream.take(0), lab.stream.take(0), lab.stream.take(0)] == [
        HEADER_RUN,
        SECOND_RUN,
        None,
    ]
    lab.land(SECOND_RUN, b"")
    assert lab.states == [0, 0, 0]
    assert not lab.finished
    assert not lab.released
    lab.land(HEADER_RUN, lab.header)
    assert lab.states == [1, 1, 1]
    assert lab.finished == [lab.stream]
    assert lab.board.words[BoardWord.FINISHED] == 1
    assert lab.stream.progress.device_bytes == GEOMETRY.extent_bytes
    assert lab.released == [HEADER_RUN, SECOND_RUN]
    assert bytes(lab.task.target.arena) == PAYLOAD


@pytest.mark.parametrize(
    ("watch", "notices"),
    [(Watch.NOTHING, [0, 0]), (Watch.END, [0, 1]), (Watch.PROGRESS, [1, 2]), (1000, [1, 2])],
)
def test_a_client_is_woken_for_what_it_watches(watch: int, notices: list[int]) -> None:
    lab = Lab()
    lab.board.words[BoardWord.WATCHED] = watch
    found = []
    for run, page in ((HEADER_RUN, lab.header), (SECOND_RUN, b"")):
        assert lab.stream.take(0) == run
        lab.land(run, page)
        found.append(lab.notices)
    assert found == notices


@pytest.mark.parametrize(("interval_s", "notices"), [(1e9, 1), (-1.0, 2)])
def test_progress_in_quick_succession_wakes_once(
    monkeypatch: pytest.MonkeyPatch, interval_s: float, notices: int
) -> None:
    monkeypatch.setattr(read_progress, "NOTIFY_INTERVAL_S", interval_s)
    lab = Lab()
    lab.board.words[BoardWord.WATCHED] = Watch.PROGRESS
    lab.stream.progress.settle(HEADER_RUN, SliceState.SKIPPED)
    lab.stream.progress.settle(SECOND_RUN, SliceState.SKIPPED)
    assert lab.notices == notices


@pytest.mark.parametrize("second_first", [True, False])
def test_failed_header_run_settles_the_others(second_first: bool) -> None:
    lab = Lab()
    lab.stream.take(0)
    lab.stream.take(0)
    steps: list[Callable[[], None]] = [
        lambda: lab.land(SECOND_RUN, b""),
        lambda: lab.fail(HEADER_RUN),
    ]
    for step in steps if second_first else reversed(steps):
        step()
    assert lab.states == [SliceState.MISSING] * 3
    assert sorted(map(str, lab.released)) == sorted(map(str, [HEADER_RUN, SECOND_RUN]))
    assert lab.damaged == []
    assert len(lab.finished) == 1


def test_chunk_whose_header_is_damaged_is_not_read_further() -> None:
    lab = Lab()
    lab.stream.take(0)
    lab.land(HEADER_RUN, bytes(4096))
    assert lab.stream.take(0) is None
    assert lab.states == [SliceState.MISSING] * 3
    assert len(lab.damaged) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"device_id": b"x" * 16},
        {"offset": 4096},
        {"chunk": ChunkId(NAMESPACE, key(1))},
        {"slices": (SliceSum(SLICE, 0),)},
    ],
)
def test_sound_header_of_something_else_is_refused(change: dict[str, object]) -> None:
    """Each field counts by itself, even if the index vouched for that page."""
    page = make_header(**change)
    lab = Lab(page)
    lab.stream.take(0)
    lab.land(HEADER_RUN, page)
    assert len(lab.damaged) == 1


def test_stale_header_is_refused() -> None:
    lab = Lab()
    lab.stream.take(0)
    lab.land(HEADER_RUN, make_header(stamp=2))
    assert len(lab.damaged) == 1


def test_a_read_is_given_up_while_runs_of_it_wait() -> None:
    """What is in flight cannot be: looking at such a read again and again would find nothing."""
    lab = Lab()
    assert not lab.stream.is_given_up()
    assert lab.stream.take(0) == HEADER_RUN
    lab.board.words[BoardWord.CANCEL] = 1
    assert lab.stream.is_given_up()
    lab.stream.give_up(0)
    assert not lab.stream.is_given_up()
    assert lab.states == [0, SliceState.SKIPPED, SliceState.SKIPPED]


def test_window_holds_back_what_does_not_fit() -> None:
    lab = Lab(window_bytes=1)
    assert lab.stream.take(0) == HEADER_RUN
    assert lab.stream.take(0) is None
    assert lab.stream.queues.has_runs(0)
    lab.stream.queues.release(0, HEADER_RUN)
    assert lab.stream.take(0) == SECOND_RUN


def test_stream_without_runs_is_over_at_once() -> None:
    lab = Lab()
    empty = ReadStream(
        ReadTask(sources=(None,), target=lab.task.target, options=lab.task.options),
        {},
        window_bytes=1,
        on_damage=lab.damaged.append,
        on_finish=lab.finished.append,
    )
    empty.begin()
    assert empty.wait(0)
    assert lab.states == [SliceState.MISSING] * 3


@pytest.mark.parametrize("word", [BoardWord.POINTER, BoardWord.CANCEL])
def test_engine_that_takes_its_word_back_cannot_strand_a_run(word: BoardWord) -> None:
    """A header that was given up stays so, and with it every other run of its chunk."""
    lab = Lab(window_bytes=1)
    lab.board.words[word] = 1
    assert lab.stream.take(0) is None
    lab.board.words[word] = 0
    assert lab.stream.take(0) is None
    assert lab.states == [SliceState.SKIPPED] * 3
    assert len(lab.finished) == 1


def test_header_skipped_before_its_chunk_is_read() -> None:
    lab = Lab()
    lab.board.words[BoardWord.POINTER] = 1
    queues = lab.stream.queues
    header_run = queues._queues[0].popleft()
    assert queues._verdict(header_run) is SliceState.SKIPPED
    lab.board.words[BoardWord.POINTER] = 0
    assert lab.stream.take(0) is None
    assert lab.states == [0, SliceState.SKIPPED, SliceState.SKIPPED]


class StatesWithLengths:
    """Stands for a board's states, and keeps the lengths that were there before each of them."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.seen: list[tuple[SliceState, list[int]]] = []

    def __setitem__(self, _place: object, state: SliceState) -> None:
        assert self.board.lengths is not None
        self.seen.append((state, self.board.lengths[0].tolist()))


def test_a_length_is_on_the_board_before_its_slice_is_resident() -> None:
    lab = Lab(has_lengths=True)
    states = lab.board.states = StatesWithLengths(lab.board)  # type: ignore[assignment]
    lab.land(HEADER_RUN, lab.header)
    lab.fail(SECOND_RUN)
    assert states.seen == [
        (SliceState.RESIDENT, [SLICE, 0, 0]),
        (SliceState.MISSING, [SLICE, 0, 0]),
    ]
