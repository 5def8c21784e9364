"""Makes changes durable, in groups: devices flushed, then one index transaction, then the acks.

Invariants, in the order in which they are established for every group:

1. Each device that the group wrote to is flushed after its writes completed.
2. The index transaction is committed after those flushes.
3. ``done`` is called after that commit, and only then are freed extents reused.

A device whose flush fails is failed stop: the flush is not retried and the changes
that depend on it are not committed. A group that the index has no room for is applied
change by change, so that a large one fails alone. When the index itself fails nothing is committed
any more. The thread ends with ``close`` and not before: an error that nobody foresaw
counts as a failure of the index, one of a callback as its own.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvstored.io.device import Device, DeviceError
from kvstored.store.index.failure import IndexFullError
from kvstored.store.index.index import Index, IndexChange, IndexFailure
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLimits:
    """How long a group may wait for more members, and when it has enough."""

    interval_s: float
    group_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One change and what it depends on.

    ``device_indices`` are those that the change's payload was written to. ``done`` is
    called once on the committer's thread: UNSPECIFIED when durable, else why not. It must
    not raise: if it does, its own work is lost; other changes of the group still commit.
    """

    change: IndexChange
    done: Callable[[Reason], None]
    device_indices: frozenset[int] = field(default_factory=frozenset)
    byte_count: int = 0


class Committer:
    """One thread that commits groups. ``submit`` may be called from any thread.

    ``pending_writes`` tells how many device writes are in flight: while there are any,
    a group waits for them up to the interval, because they will want the same flush.
    """

    def __init__(
        self,
        *,
        index: Index,
        devices: Sequence[Device],
        limits: CommitLimits,
        pending_writes: Callable[[], int],
        on_device_error: Callable[[int, DeviceError], None],
    ) -> None:
        self._index = index
        self._devices = devices
        self._limits = limits
        self._pending_writes = pending_writes
        self._on_device_error = on_device_error
        self._queue: queue.Queue[Commit | None] = queue.Queue()
        self._closing = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="kvstored-commit", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether an error that nobody foresaw has ended all committing."""
        return self._has_failed

    def submit(self, commit: Commit) -> None:
        """Queues one change; its ``done`` says what became of it."""
        self._queue.put(commit)

    def close(self) -> None:
        """Commits everything that was submitted and ends the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while not self._closing:
            first = self._queue.get()
            if first is not None:
                self._commit(self._collect(first))
            else:
                self._closing = True

    def _collect(self, first: Commit) -> list[Commit]:
        """Gathers a group after its first member."""
        group = [first]
        group_bytes = first.byte_count
        deadline = time.monotonic() + self._limits.interval_s
        while group_bytes < self._limits.group_bytes:
            wait_s = deadline - time.monotonic() if self._pending_writes() else 0.0
            try:
                commit = self._queue.get(timeout=wait_s) if wait_s > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            if commit is None:
                self._closing = True
                break
            group.append(commit)
            group_bytes += commit.byte_count
        return group

    def _commit(self, group: list[Commit]) -> None:
        for commit, outcome in zip(group, self._outcomes(group), strict=True):
            try:
                commit.done(outcome)
            except Exception:
                LOGGER.critical("what follows a commit has failed", exc_info=True)

    def _outcomes(self, group: list[Commit]) -> list[Reason]:
        """Makes a group durable and says what became of each of its members."""
        if self._has_failed:
            return [Reason.INTERNAL] * len(group)
        try:
            failed = self._flush(written_devices(group))
            sound = [each for each in group if not each.device_indices & failed]
            outcomes = iter(self._apply(sound))
        except Exception:
            # Whether the transaction took place is unknown, as after a failed sync.
            self._has_failed = True
            LOGGER.critical("a commit has failed; nothing is stored any more", exc_info=True)
            return [Reason.INTERNAL] * len(group)
        return [
            Reason.DEVICE_FAILED if each.device_indices & failed else next(outcomes)
            for each in group
        ]

    def _flush(self, device_indices: frozenset[int]) -> frozenset[int]:
        """Flushes devices; returns those that failed."""
        failed = set()
        for device_index in sorted(device_indices):
            try:
                self._devices[device_index].flush()
            except DeviceError as error:
                failed.add(device_index)
                self._on_device_error(device_index, error)
        return frozenset(failed)

    def _apply(self, group: list[Commit]) -> list[Reason]:
        """Applies a group at once or, where the map has no room for that, each alone."""
        outcomes = [Reason.UNSPECIFIED] * len(group)
        parts = [list(range(len(group)))] if group else []
        full: IndexFullError | None = None
        while parts:
            part = parts.pop()
            reason = Reason.UNSPECIFIED
            try:
                self._index.apply(IndexChange.merged([group[place].change for place in part]))
            except IndexFullError as error:
                full, reason = error, Reason.STORE_FULL
                if len(part) > 1:
                    parts = _singles(group)[::-1]
            except IndexFailure:
                LOGGER.exception("the index failed; nothing is stored any more")
                reason = Reason.INTERNAL
            for place in part:
                outcomes[place] = reason
        if full is not None:
            LOGGER.warning("%s", full)
        return outcomes


def _singles(group: list[Commit]) -> list[list[int]]:
    """Each member of a group that did not fit, alone; removals first, because they make room.

    They may: who changes a sequence waits for its last change, and a chunk is not deleted
    before its put is settled. Larger parts would take every page that LMDB has free, and it
    reuses those of a transaction only after the next one.
    """

    def is_removal(place: int) -> bool:
        change = group[place].change
        return bool(change.deletes or change.sequence_deletes)

    return [[place] for place in sorted(range(len(group)), key=is_removal, reverse=True)]


def written_devices(group: Sequence[Commit]) -> frozenset[int]:
    """The devices that hold what the members of a group wrote."""
    # Arguments from a list: from a generator the interpreter makes a tuple that is too large and
    # cuts it. When it goes it is kept, up to 2,000 of each length, and seldom used again.
    return frozenset().union(*[each.device_indices for each in group])
