"""One read in progress, made of three parts that each own their state.

``RunQueues`` knows what to issue next, ``Landings`` whether it is whole, ``ReadProgress``
tells the client.
"""

from collections.abc import Callable

from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.read.landings import Landing, Landings
from kvstored.store.read.plan import LayerRun
from kvstored.store.read.read_progress import ReadProgress
from kvstored.store.read.read_task import ReadTask
from kvstored.store.read.run_queues import RunQueues
from kvstored_contract.board import SliceState


class ReadStream:
    """Passes runs from one part to the next. Methods may be called from any thread.

    ``on_damage`` is called once for each chunk whose bytes do not match the index;
    ``on_finish`` once, after the last access to the arena.
    """

    def __init__(
        self,
        task: ReadTask,
        plan: dict[int, list[LayerRun]],
        *,
        window_bytes: int,
        on_damage: Callable[[StoredChunk], None],
        on_finish: Callable[["ReadStream"], None],
    ) -> None:
        self.task = task
        self.progress = ReadProgress(task, sum(map(len, plan.values())))
        self._on_finish = on_finish
        self._landings = Landings(task, on_damage)
        self.queues = RunQueues(
            task, plan, window_bytes=window_bytes, is_damaged=self._landings.is_damaged
        )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the read is over; then nothing touches the arena any more."""
        return self.progress.wait(timeout_s)

    def begin(self) -> None:
        """Settles what is not stored; the read is over at once where nothing is."""
        if self.progress.begin():
            self._on_finish(self)

    def take(self, lane: int) -> LayerRun | None:
        """The next run to issue on ``lane``; settles those before it that are given up."""
        taken = self.queues.take(lane)
        for run, state in taken.given_up:
            self._settle(run, state)
        return taken.run

    def is_given_up(self) -> bool:
        """Whether runs of it wait though its client has cancelled it, or its deadline is over."""
        return self.queues.is_given_up()

    def give_up(self, lane: int) -> None:
        """Settles what ``lane`` need not read any more, and issues nothing."""
        while given_up := self.queues.give_up(lane):
            for run, state in given_up:
                self._settle(run, state)

    def landed(self, landing: Landing, header_page: bytes) -> None:
        """Takes over a run that a device has read; see ``Landings.landed``."""
        self.progress.transferred(landing.run)
        for run, state in self._landings.landed(landing, header_page):
            self._settle(run, state)

    def failed(self, landing: Landing) -> None:
        """Takes over a run that could not be read."""
        for run, state in self._landings.failed(landing):
            self._settle(run, state)

    def copied(self, run: LayerRun, *, is_sound: bool = True) -> None:
        """Takes over a run that was copied from DRAM, or could not be: there are no headers."""
        if is_sound:
            self.progress.copied(run)
        self._settle(run, SliceState.RESIDENT if is_sound else SliceState.MISSING)

    def _settle(self, run: LayerRun, state: SliceState) -> None:
        if self.progress.settle(run, state):
            self._on_finish(self)
