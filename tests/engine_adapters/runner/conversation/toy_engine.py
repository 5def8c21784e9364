"""An engine without a model: it takes turns of conversations as the runner's engine does."""

from dataclasses import replace
from itertools import count

from engine_adapters.conversation.conversations import Conversation, Conversations, StoredStates
from engine_adapters.conversation.history import dropped, overflow_cut
from engine_adapters.conversation.words import Told
from engine_adapters.runner.model.step import Segment
from engine_adapters.runner.save.saver import StateSaver
from kvstored_client.testing import MemoryClient
from kvstored_contract.keys import Cut
from tests.engine_adapters.runner.conversation.toy_states import (
    FORMAT,
    LAYOUT,
    SINKS,
    WINDOW,
    DigestWindow,
    rows_of,
    tensors_of,
)

STEP_TOKENS = 5
LEASE_MS = 60_000


class ToyEngine:
    """A client with its saver. After each step it waits until that is saved, so runs repeat."""

    def __init__(self, client: MemoryClient) -> None:
        self.client = client
        self.conversations = Conversations(client, LAYOUT.model)
        self._saver = StateSaver(client, FORMAT)
        self._numbers = count()

    def close(self) -> None:
        """As the end of a process: nothing is flushed."""
        self.client.close()
        self._saver.close()

    def turn(self, name: str, prompt: list[int], new_tokens: int) -> Conversation:
        """Continues a conversation with a prompt and an answer; durable when it returns."""
        before = self.conversations.open(name)
        told, computed = len(before.token_ids), before.computed_tokens
        cuts = list(before.cuts)
        cut = overflow_cut(
            cuts,
            computed,
            new_count=told - computed + len(prompt),
            window_tokens=WINDOW,
            sink_tokens=SINKS,
        )
        cuts += [] if cut is None else [cut]
        running = Running(name, [*before.token_ids, *prompt], cuts)
        stop = len(running.token_ids) + new_tokens
        stored = self.stored(before, cuts)
        running.restore(stored, self.loaded(stored))
        request_id = next(self._numbers)
        self._saver.begin_conversation(
            request_id,
            name,
            running.token_ids,
            running.cuts,
            running.computed,
            is_tail_stored=running.computed == stored.stop,
        )
        while len(running.token_ids) < stop:
            self._step(request_id, running)
        self._saver.end_request(request_id)
        self._saver.finish()
        return self.conversations.end_turn(
            before, running.token_ids[told:], running.cuts[len(before.cuts) :]
        )

    def stored(self, conversation: Conversation, cuts: list[Cut]) -> StoredStates:
        """What the store has of a conversation that is cut so."""
        told = Told(conversation.token_ids, tuple(cuts))
        asked = replace(conversation, told=told)
        return self.conversations.stored(asked, LAYOUT, lease_ms=LEASE_MS)

    def loaded(self, stored: StoredStates) -> list[bytes]:
        """The states of the pieces, each at its position; gives the lease back."""
        chunks = self.client.store.chunks
        rows: list[bytes] = []
        for piece in stored.usable.pieces:
            assert stored.lease is not None
            assert stored.lease.is_pinned[piece.chunk]
            assert piece.first_position == len(rows)
            found = rows_of(chunks[stored.keys[piece.chunk]])
            rows += found[piece.first_row : piece.first_row + piece.token_count]
            assert len(rows) == piece.first_position + piece.token_count
        if stored.lease is not None:
            stored.lease.release()
        return rows

    def _step(self, request_id: int, running: "Running") -> None:
        segment, rows = running.step(request_id)
        self._saver.begin_step([segment])
        hidden, keys, values = tensors_of(rows)
        for layer in range(LAYOUT.layer_count):
            self._saver.take(layer, hidden, keys, values)
        self._saver.end_step()
        self._saver.finish()


class Running:
    """A turn under way: the lists are live, as those of a request are."""

    def __init__(self, name: str, token_ids: list[int], cuts: list[Cut]) -> None:
        self.name = name
        self.token_ids = token_ids
        self.cuts = cuts
        self.computed = 0
        self._window = DigestWindow()
        self._made = 0

    def restore(self, stored: StoredStates, rows: list[bytes]) -> None:
        """Goes on with what was loaded."""
        self.computed = stored.usable.next_token
        self._made = stored.usable.cut_count
        self._window = DigestWindow(rows)

    def step(self, request_id: int) -> tuple[Segment, list[bytes]]:
        """Computes some tokens, and samples one when all are computed."""
        self._make_cuts()
        room = WINDOW - len(self._window.rows)
        count = min(STEP_TOKENS, room, len(self.token_ids) - self.computed)
        if self._made < len(self.cuts):
            count = min(count, self.cuts[self._made].first_token - self.computed)
        segment = Segment(
            request_id=request_id,
            first_row=0,
            token_count=count,
            first_position=len(self._window.rows),
            first_slot=0,
            dropped_count=dropped(self.cuts[: self._made]),
        )
        assert segment.stop_token == self.computed + count > self.computed
        rows = [self._window.feed(token) for token in self.token_ids[self.computed :][:count]]
        self.computed += count
        if self.computed == len(self.token_ids):
            self.token_ids.append(self._window.next_token())
        return segment, rows

    def _make_cuts(self) -> None:
        while self._made < len(self.cuts) and self.cuts[self._made].first_token == self.computed:
            self._cut(self.cuts[self._made])
        if self._made == len(self.cuts) and len(self._window.rows) == WINDOW:
            made = overflow_cut(
                self.cuts, self.computed, new_count=1, window_tokens=WINDOW, sink_tokens=SINKS
            )
            assert made is not None
            self.cuts.append(made)
            self._cut(made)

    def _cut(self, cut: Cut) -> None:
        self._window.keep(cut.kept)
        self._made += 1
