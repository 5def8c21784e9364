"""A store in memory: what the daemon answers, without a daemon."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from kvstored_client.testing.calls import SERVED_CALLS
from kvstored_client.testing.faults import CallName, Faults
from kvstored_client.testing.memory_changes import MemoryChanges
from kvstored_client.testing.memory_sequence import MemorySequence
from kvstored_client.testing.memory_session import MemorySession
from kvstored_client.testing.refusal import GoneError, RefusedError, SilentError
from kvstored_client.testing.served_read import ServedRead
from kvstored_client.testing.stored_chunk import StoredChunk
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, session_pb2

MessageT = TypeVar("MessageT", bound=Message)


class MemoryStore:
    """Chunks and sequences in memory, for tests of code that uses the SDK. Thread-safe.

    ``MemoryClient(store)`` and ``AsyncMemoryClient(store)`` are clients of it without sockets
    and gRPC, ``MemoryDaemon(store, folder)`` lets every client connect. It serves and refuses
    what the daemon does, but for limits of what a node has: memory, devices, sessions. What was
    put is durable at once. ``faults`` says what goes wrong, and when reads arrive.

    ``chunks`` (stored chunk by key) is kept and not copied, so that stores can share what they
    hold; a test may change it. ``clock`` gives the seconds by which leases and deadlines of
    reads end. ``changes`` is what followers hear. ``requests`` are all messages that clients
    sent, ``reads`` all reads, ``call_counts`` the calls that were served.
    """

    def __init__(
        self,
        *,
        chunks: dict[bytes, StoredChunk] | None = None,
        faults: Faults | None = None,
        namespace: str = "default",
        epoch: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.chunks: dict[bytes, StoredChunk] = {} if chunks is None else chunks
        self.faults = faults or Faults()
        self.namespace = namespace
        self.epoch = epoch
        self.clock = clock
        self.sequences: dict[tuple[str, int], MemorySequence] = {}
        """By name and session, which is 0 for all that are not ephemeral."""
        self.sessions: dict[str, MemorySession] = {}
        """Open sessions by token."""
        self.requests: list[Message] = []
        self.reads: list[ServedRead] = []
        self.call_counts: Counter[CallName] = Counter()
        self.regions_in_use = 0
        """Regions that ``MemoryClient`` objects have not released, of sessions that ended too."""
        self.region_bytes_in_use = 0
        """Their bytes, each rounded up to 4 KiB."""
        self.boards_in_use = 0
        """Boards of reads that they have not closed."""
        self.changes = MemoryChanges()
        self.is_running = True
        self._lock = threading.RLock()
        self._session_ids = itertools.count(1)
        self._lease_ids = itertools.count(1)

    @property
    def leases_in_use(self) -> int:
        """Leases that were neither released nor have expired."""
        self.end_left_sessions()
        with self._lock:
            leases = [one for each in self.sessions.values() for one in each.leases.values()]
        return sum(lease.expires_at > self.clock() for lease in leases)

    @property
    def reads_in_flight(self) -> list[ServedRead]:
        """Reads that are not finished, in the order in which they were asked for."""
        return [read for read in self.reads if not read.is_finished]

    def asked(self, kind: type[MessageT]) -> list[MessageT]:
        """All requests of one kind so far, in their order."""
        return [request for request in self.requests if isinstance(request, kind)]

    def deliver(self, count: int = 1) -> int:
        """Brings so many chunks (of LAYER_FIRST reads: layers), one read after another.

        Returns how many there were.
        """
        return sum(any(read.deliver_next() for read in self.reads_in_flight) for _ in range(count))

    def kill(self) -> None:
        """Ends every session at once; nobody can connect until ``start``."""
        with self._lock:
            self.is_running = False
            for token in list(self.sessions):
                self._end(token)

    def start(self) -> None:
        """Lets clients connect again, in the next epoch."""
        with self._lock:
            self.epoch += not self.is_running
            self.is_running = True

    def restart(self) -> None:
        """Kills and starts the store: chunks and what is durable of sequences stay."""
        self.kill()
        self.start()

    def note(self, message: Message) -> None:
        """Adds a message to ``requests``."""
        with self._lock:
            self.requests.append(message)

    def admit(self, make: Callable[[int], MemorySession]) -> session_pb2.Welcome:
        """Grants a session that ``make`` builds of its id, or answers with a refusal."""
        if self.faults.session_refusal:
            reason = common_pb2.Reason.ValueType(Reason.LIMIT_EXCEEDED)
            return session_pb2.Welcome(refusal=self.faults.session_refusal, reason=reason)
        with self._lock:
            session_id = next(self._session_ids)
            session = make(session_id)
            token = f"token-{self.epoch}-{session_id}"
            self.sessions[token] = session
            return session_pb2.Welcome(
                epoch=self.epoch,
                session_id=session_id,
                token=token,
                namespace=self.namespace,
                arena_bytes=len(session.arena),
                admin=True,
            )

    def answer(self, token: str, path: str, request: Message) -> Message:
        """Serves one call; raises UnservedError."""
        call = SERVED_CALLS[path]
        faults = self.faults
        self.end_left_sessions()
        session = self.sessions.get(token)
        if session is None:
            if not self.is_running:
                raise GoneError("the store was killed")
            raise RefusedError(Reason.TOKEN_UNKNOWN, "the session is unknown; connect again")
        self.note(request)
        faults.before(request)
        if call.name in faults.silent:
            raise SilentError("the call failed, and nobody says why")
        if call.name in faults.refusals:
            reason = faults.refusals[call.name]
            raise RefusedError(reason, f"the test refuses it: {reason.name}")
        with self._lock:
            if session.is_ended:
                raise GoneError("the session ended during the call")
            self.call_counts[call.name] += 1
            reply = call.serve(self, session, request)
            self.changes.look(self.chunks)
        faults.after(request)
        return reply

    def sequence_of(self, session: MemorySession, name: str) -> MemorySequence | None:
        """What a session means by a name: its own ephemeral sequence comes first."""
        own = self.sequences.get((name, session.session_id))
        return own or self.sequences.get((name, 0))

    def next_lease_id(self) -> int:
        """An id that no lease had before."""
        return next(self._lease_ids)

    def count_region(self, byte_count: int) -> None:
        """Keeps ``regions_in_use``: one more of so many bytes, or (below 0) one less."""
        with self._lock:
            self.regions_in_use += 1 if byte_count > 0 else -1
            self.region_bytes_in_use += byte_count

    def count_board(self, added: int) -> None:
        """Keeps ``boards_in_use``."""
        with self._lock:
            self.boards_in_use += added

    def end_left_sessions(self) -> None:
        """Ends the sessions whose client has gone away."""
        with self._lock:
            for token, session in list(self.sessions.items()):
                if session.is_left:
                    self._end(token)

    def _end(self, token: str) -> None:
        """Ends a session, its ephemeral sequences, and the open tails that it owns."""
        session = self.sessions.pop(token)
        session.end()
        for place, sequence in list(self.sequences.items()):
            if sequence.session_id == session.session_id:
                del self.sequences[place]
            elif sequence.owner == session.session_id:
                sequence.lose_tail()
                sequence.owner = 0
