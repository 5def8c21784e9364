"""Moments of a store's calls: at one of them the session of the engine ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from google.protobuf.message import Message

from engine_adapters.conversation.journal import NAME_SUFFIX
from kvstored_client.testing import MemoryStore
from kvstored_client.testing.refusal import GoneError
from kvstored_contract.reasons import Reason
from kvstored_protos.v1.sequence_pb2 import FlushSequenceRequest, ForkSequenceRequest
from kvstored_protos.v1.store_pb2 import PinRequest
from tests.engine_adapters.runner.conversation.toy_states import LAYOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The session ends before or after (``is_served``) the call with this number is served.

    ``revives``: the store is back at once, as a daemon that was killed, and the engine goes on.
    Else the engine is gone.
    """

    call: int
    is_served: bool
    revives: bool


class StoreMoments:
    """Counts the calls of one action, ends sessions, and knows what the store has really done.

    ``has_happened``: the token ids of the action are durable. ``was_killed`` says whether the
    action got as far as the kill.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._kill: Kill | None = None
        self._calls = 0
        self.has_happened = False
        self.was_killed = False
        self.are_states_late = False
        """Whether no device takes states in time; token ids become durable all the same."""
        self.dropped_appends: frozenset[int] = frozenset()
        """Numbers of appends, from the start of the action, whose states find no room."""
        self.evicted_key = b""
        """A chunk that goes when the states of a turn have been looked up."""
        store.faults.before = self._before
        store.faults.after = self._after
        store.faults.append_rejection = self._rejection
        self._appends = 0

    @contextmanager
    def action(self, kill: Kill | None) -> Iterator[None]:
        """One action of the engine; a store that was killed is back when the body has ended."""
        self._kill, self._calls, self._appends = kill, 0, 0
        self.has_happened = self.was_killed = False
        try:
            yield
        finally:
            self._kill = None
            self.are_states_late = False
            self.dropped_appends = frozenset()
            self.evicted_key = b""
            self._store.faults.devices_are_late = False
            self._store.start()

    def _before(self, request: Message) -> None:
        if isinstance(request, FlushSequenceRequest):
            is_late = self.are_states_late and not request.name.endswith(NAME_SUFFIX)
            self._store.faults.devices_are_late = is_late
        if isinstance(request, PinRequest) and request.layout_id == LAYOUT.layout_id:
            self._store.chunks.pop(self.evicted_key, None)
        if self._kill is not None and not self._kill.is_served:
            self._moment(self._kill)

    def _after(self, request: Message) -> None:
        names = request.name if isinstance(request, FlushSequenceRequest) else ""
        names = request.new_name if isinstance(request, ForkSequenceRequest) else names
        self.has_happened |= names.endswith(NAME_SUFFIX)
        if self._kill is not None and self._kill.is_served and self._moment(self._kill):
            raise GoneError("the answer is lost")

    def _rejection(self, _number: int, name: str) -> Reason | None:
        if name.endswith(NAME_SUFFIX):
            return None
        self._appends += 1
        return Reason.DRAM_FULL if self._appends - 1 in self.dropped_appends else None

    def _moment(self, kill: Kill) -> bool:
        """Whether it is the one of the kill."""
        self._calls += 1
        if self._calls != kill.call:
            return False
        self.was_killed = True
        self._store.kill()
        if kill.revives:
            self._store.start()
        return True
