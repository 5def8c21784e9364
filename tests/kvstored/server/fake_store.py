"""A store of dictionaries, for tests of what lies above it."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import cast

from kvstored.format.extent_header import SliceSum
from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceTail
from kvstored.store.read.read_stream import ReadStream
from kvstored.store.sequences import rules
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.tiers.changes.change_log import Change, ChangeKind, ChangeLog
from kvstored.tiers.chunks.requests import (
    AppendOutcome,
    AppendRequest,
    ChangesAnswer,
    LayoutRefusedError,
    PutOutcome,
    PutRequest,
    PutTicket,
    ReadRequest,
)
from kvstored.tiers.chunks.status import ChunkDetail, ChunkStatus, DeviceStatus, StoreStats
from kvstored.tiers.hints.queue_change import QueueAnswer, QueueChange
from kvstored.tiers.hints.waiting_queue import WaitingQueue
from kvstored.tiers.policy.prefetch_plan import WaitingSequence
from kvstored.tiers.sequences.sequences import Caller
from kvstored_contract.board import BoardWord, SliceState
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason


class FakeStream:
    """A read that a test finishes, or that ends when it is cancelled."""

    dram_chunks = 1
    nvme_chunks = 2

    def __init__(self, request: ReadRequest | None = None) -> None:
        self.request = request
        self.task = self
        self.finished = threading.Event()
        self.is_late = False

    def is_given_up(self) -> bool:
        return self.is_late

    def finish(self) -> None:
        if self.request is not None:
            self.request.board.states[:] = SliceState.RESIDENT
            self.request.board.words[BoardWord.FINISHED] = 1
            self.request.notify()
        self.finished.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        return self.finished.wait(timeout_s)


class FakeSequences:
    """Sequences by namespace and name; ``flushed`` notes what was flushed under which key.

    ``is_late`` keeps flushes from making anything durable.
    """

    def __init__(self) -> None:
        self.states: dict[tuple[bytes, str], SequenceState] = {}
        self.ephemeral: set[tuple[bytes, str]] = set()
        self.flushed: list[bytes] = []
        self.is_late = False

    def get(self, caller: Caller, name: str) -> SequenceState:
        if (caller.namespace_id, name) not in self.states:
            raise rules.SequenceUnknownError("no such sequence")
        return self.states[caller.namespace_id, name]

    def is_ephemeral(self, caller: Caller, name: str) -> bool:
        return (caller.namespace_id, name) in self.ephemeral

    def list(self, caller: Caller) -> list[str]:
        return sorted(name for owner, name in self.states if owner == caller.namespace_id)

    def create(
        self,
        caller: Caller,
        name: str,
        layout: StateLayout,
        *,
        keys: Sequence[bytes],
        is_ephemeral: bool,
    ) -> SequenceState:
        if (caller.namespace_id, name) in self.states:
            raise rules.SequenceExistsError("taken")
        if is_ephemeral:
            self.ephemeral.add((caller.namespace_id, name))
        state = rules.create(layout.layout_id, layout.chunk_tokens, keys)
        return self._store(caller, name, state)

    def append(
        self, caller: Caller, name: str, keys: Sequence[bytes], expected_chunks: int
    ) -> SequenceState:
        state = rules.append(self.get(caller, name), keys, expected_chunks)
        return self._store(caller, name, state)

    def fork(self, caller: Caller, name: str, new_name: str, keep_chunks: int) -> SequenceState:
        return self._store(caller, new_name, rules.fork(self.get(caller, name), keep_chunks))

    def truncate_front(self, caller: Caller, name: str, drop_chunks: int) -> SequenceState:
        state = rules.truncate_front(self.get(caller, name), drop_chunks)
        return self._store(caller, name, state)

    def truncate_back(self, caller: Caller, name: str, drop_chunks: int) -> SequenceState:
        state = rules.truncate_back(self.get(caller, name), drop_chunks)
        return self._store(caller, name, state)

    def truncate_tokens(self, caller: Caller, name: str, drop_tokens: int) -> SequenceState:
        state = rules.truncate_tokens(self.get(caller, name), drop_tokens)
        return self._store(caller, name, state)

    def glance(self, caller: Caller, name: str) -> SequenceState | None:
        return self.states.get((caller.namespace_id, name))

    def flush(
        self, caller: Caller, name: str, tail_key: bytes, expected_tokens: int
    ) -> SequenceState:
        state = self.get(caller, name)
        rules.check_length(state, expected_tokens)
        self.flushed.append(tail_key)
        if self.is_late:
            return state
        tail = SequenceTail(key=tail_key, token_count=state.tail_tokens)
        return self._store(caller, name, state.with_flushed_tail(tail))

    def delete(self, caller: Caller, name: str) -> None:
        self.get(caller, name)
        del self.states[caller.namespace_id, name]

    def _store(self, caller: Caller, name: str, state: SequenceState) -> SequenceState:
        self.states[caller.namespace_id, name] = state
        return state


class FakeHints:
    """A queue that no tier hears of, of sequences that ``FakeSequences`` has."""

    def __init__(self, sequences: FakeSequences) -> None:
        self._sequences = sequences
        self.queue = WaitingQueue(())
        self.changes: list[QueueChange] = []

    def hint(self, caller: Caller, change: QueueChange) -> QueueAnswer:
        self.changes.append(change)
        names = {name for _, name in self._sequences.states}
        return self.queue.change(
            caller.session_id,
            caller.namespace_id,
            versions=(change.version, change.previous_version),
            entered={
                entry.name: (entry.place, WaitingSequence(chunks=(), chunk_bytes=1))
                for entry in change.entered
                if entry.keys or entry.name in names
            },
            left=change.left,
        )

    def end_session(self, session_id: int) -> None:
        self.queue.end_session(session_id)


class FakeStore:
    """Keys in a set; ``durable`` resolves what puts wait for, ``hold`` keeps puts waiting.

    ``look_hold`` keeps pins and reads waiting; ``unpinned_at_once`` are the sizes of unpins.
    """

    layout_tokens_max = 1000

    def __init__(self) -> None:
        self.put_path = self.append_path = self.read_path = self.inspection = self
        self.layouts = self
        self.open_sequences = self
        self.stored: set[ChunkId] = set()
        self.pins: Counter[ChunkId] = Counter()
        self.streams: list[FakeStream] = []
        self.given_up: list[object] = []
        self.durable: Reason | None = Reason.UNSPECIFIED
        self.hold = threading.Event()
        self.hold.set()
        self.puts_begun = threading.Semaphore(0)
        self.look_hold = threading.Event()
        self.look_hold.set()
        self.looks_begun = 0
        self.unpinned_at_once: list[int] = []
        self.evicted_before_pin: set[bytes] = set()
        self.failure: Exception | None = None
        self.index_failed = False
        self.sequences = FakeSequences()
        self.hints = FakeHints(self.sequences)
        self.appends: list[AppendRequest] = []
        self.append_reason = Reason.UNSPECIFIED
        self.ended_sessions: list[int] = []
        self.logs: defaultdict[bytes, ChangeLog] = defaultdict(ChangeLog)

    def register(self, layout: StateLayout) -> None:
        if layout.chunk_tokens > self.layout_tokens_max:
            raise LayoutRefusedError("too large")

    def put(self, request: PutRequest) -> list[PutTicket]:
        self.puts_begun.release()
        self.hold.wait()
        tickets = []
        for new in request.chunks:
            chunk = ChunkId(request.namespace_id, new.key)
            durable: Future[Reason] = Future()
            if self.durable is not None:
                durable.set_result(self.durable)
            known = chunk in self.stored
            tickets.append(
                PutTicket(
                    outcome=PutOutcome.EXISTED if known else PutOutcome.STORED, durable=durable
                )
            )
            self.stored.add(chunk)
            log = self.logs[request.namespace_id]
            log.add(Change(ChangeKind.STORED, new.key, new.note))
        return tickets

    def append(self, request: AppendRequest) -> list[AppendOutcome]:
        self.appends.append(request)
        return [
            AppendOutcome(item.first_token + item.token_count, self.append_reason)
            for item in request.items
        ]

    def end_session(self, session_id: int) -> None:
        self.ended_sessions.append(session_id)

    def match(self, namespace_id: bytes, keys: Sequence[bytes]) -> int:
        if self.failure is not None:
            raise self.failure
        for index, key in enumerate(keys):
            if ChunkId(namespace_id, key) not in self.stored:
                return index
        return len(keys)

    def read(self, request: ReadRequest) -> ReadStream:
        self._look()
        self.streams.append(FakeStream(request))
        return cast("ReadStream", self.streams[-1])

    def cancel(self, stream: ReadStream) -> None:
        cast("FakeStream", stream).finish()

    def give_up(self, stream: ReadStream) -> None:
        self.given_up.append(stream)
        cast("FakeStream", stream).finish()

    def _look(self) -> None:
        self.looks_begun += 1
        self.look_hold.wait()

    def pin(self, namespace_id: bytes, keys: Sequence[bytes]) -> tuple[ChunkId, ...]:
        self._look()
        chunks = tuple(
            chunk
            for key in keys
            if (chunk := ChunkId(namespace_id, key)) in self.stored
            and key not in self.evicted_before_pin
        )
        self.pins.update(chunks)
        return chunks

    def unpin(self, chunks: Iterable[ChunkId]) -> None:
        chunks = tuple(chunks)
        self.unpinned_at_once.append(len(chunks))
        self.pins.subtract(chunks)

    def delete(self, namespace_id: bytes, keys: Sequence[bytes]) -> Future[int]:
        chunks = {ChunkId(namespace_id, key) for key in keys} & self.stored
        self.stored -= chunks
        future: Future[int] = Future()
        future.set_result(len(chunks))
        return future

    def changes(
        self, namespace_id: bytes, keys: Sequence[bytes], *, epoch: int, after_sequence: int
    ) -> ChangesAnswer:
        return ChangesAnswer(
            epoch=7,
            span=self.logs[namespace_id].after(after_sequence if epoch == 7 else None),
            are_stored=tuple(ChunkId(namespace_id, key) in self.stored for key in keys),
        )

    def stats(self) -> StoreStats:
        device = DeviceStatus(
            path="/dev/x",
            capacity_bytes=100,
            used_bytes=50,
            read_bytes=1,
            written_bytes=2,
            read_requests=3,
            write_requests=4,
            flush_requests=5,
            failed=False,
        )
        return StoreStats(
            epoch=7,
            chunk_count=len(self.stored),
            sequence_count=0,
            dram_capacity_bytes=10,
            dram_used_bytes=5,
            dram_chunk_count=1,
            pinned_chunk_count=len(+self.pins),
            index_failed=self.index_failed,
            counters={"hits": 3},
            devices=(device,),
        )

    def list_chunks(self, key_prefix: str, limit: int) -> tuple[list[ChunkStatus], bool]:
        found = [chunk for chunk in self.stored if chunk.key.hex().startswith(key_prefix)]
        return [status_of(chunk) for chunk in found[:limit]], len(found) > limit

    def inspect(self, key_prefix: str) -> ChunkDetail | None:
        found, _ = self.list_chunks(key_prefix, 1)
        if not found:
            return None
        return ChunkDetail(status=found[0], parent_key=b"p" * 32, slices=(SliceSum(64, 9),))


def status_of(chunk: ChunkId) -> ChunkStatus:
    return ChunkStatus(
        chunk=chunk,
        layout_id=b"l" * 32,
        token_count=4,
        device_index=0,
        offset=4096,
        extent_bytes=8192,
        epoch=7,
        quarantined=False,
        in_dram=True,
    )
