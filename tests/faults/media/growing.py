"""Sequences that grow in a store of the lab, and what their chunks must hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.tiers.chunks.requests import AppendItem, AppendOutcome, AppendRequest
from kvstored.tiers.sequences.sequences import Caller
from tests.faults.media.served import LAYOUT, ServedStore
from tests.support.rows import Rows
from tests.support.sequence_model import SequenceModel
from tests.support.stores import NAMESPACE, key
from tests.support.waiting import wait_until

GROWN_FIRST = 500_000
"""Chunks of sequences have numbers from this one on."""
CHUNK_TOKENS = LAYOUT.chunk_tokens
ROWS = Rows(LAYOUT)


@dataclass(slots=True)
class GrownChunks:
    """Numbers of chunks by all tokens up to their end, and their slices by these numbers."""

    slices: dict[int, list[bytes]] = field(default_factory=dict)
    _numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def number(self, tokens: Sequence[int]) -> int:
        """The chunk, complete or short, that these tokens of a sequence end with."""
        found = self._numbers.get(tuple(tokens))
        if found is None:
            found = self._numbers[tuple(tokens)] = GROWN_FIRST + len(self._numbers)
            start = (len(tokens) - 1) // CHUNK_TOKENS * CHUNK_TOKENS
            self.slices[found] = ROWS.slices(tokens[start:])
        return found

    def numbers(self, model: SequenceModel, length: int) -> list[int]:
        """The chunks of the first ``length`` tokens of a sequence, the last may be short."""
        ends = [*range(CHUNK_TOKENS, length + 1, CHUNK_TOKENS)]
        ends += [length] if length % CHUNK_TOKENS else []
        return [self.number(model.dropped + model.tokens[:end]) for end in ends]


@dataclass(frozen=True, slots=True)
class Grower:
    """A session that appends to sequences of an open store."""

    served: ServedStore
    chunks: GrownChunks
    session_id: int

    @property
    def caller(self) -> Caller:
        """Who calls."""
        return Caller(NAMESPACE, self.session_id)

    def create(self, name: str) -> SequenceModel:
        """Makes a named sequence."""
        self.served.store.sequences.create(self.caller, name, LAYOUT)
        return SequenceModel(CHUNK_TOKENS)

    def append(self, added: Sequence[tuple[str, SequenceModel, list[int]]]) -> list[AppendOutcome]:
        """One step; the models have the tokens from then on, whatever became of them."""
        step: list[int] = []
        items = []
        for name, model, tokens in added:
            before = len(model.tokens)
            model.tokens += tokens
            numbers = self.chunks.numbers(model, model.complete * CHUNK_TOKENS)
            items.append(
                AppendItem(
                    name=name,
                    first_token=before,
                    first_row=len(step),
                    token_count=len(tokens),
                    keys=tuple(map(key, numbers[before // CHUNK_TOKENS :])),
                )
            )
            step += tokens
        snapshot = ROWS.snapshot(step)
        self.served.arena[: len(snapshot)] = snapshot
        return self.served.store.append_path.append(
            AppendRequest(
                namespace_id=NAMESPACE,
                session_id=self.session_id,
                layout=LAYOUT,
                row_count=len(step),
                source=self.served.arena[: len(snapshot)],
                items=tuple(items),
            )
        )

    def flush(self, name: str, model: SequenceModel) -> SequenceState:
        """Flushes a whole sequence; raises as ``Sequences.flush``, and it may be durable then."""
        length = len(model.tokens)
        model.flushed.add(length)
        numbers = self.chunks.numbers(model, length)
        tail_key = key(numbers[-1]) if length % CHUNK_TOKENS else b""
        state = self.served.store.sequences.flush(self.caller, name, tail_key, length)
        assert state.durable_tokens == length, state
        model.survives(length)
        return state

    def state(self, name: str) -> SequenceState:
        """The sequence as it is now."""
        return self.served.store.sequences.get(self.caller, name)

    def settled(self, name: str) -> SequenceState:
        """The same when none of its chunks is on its way any more."""
        opened = self.served.store.open_sequences
        identity = opened.resolve(NAMESPACE, self.session_id, name)

        def is_settled() -> bool:
            with opened.held_one(identity) as sequence:
                return not sequence.pending

        wait_until(is_settled)
        return self.state(name)

    def check_names(self, name: str, model: SequenceModel) -> None:
        """The sequence names the chunks of its durable tokens, and no other."""
        state = self.state(name)
        numbers = self.chunks.numbers(model, state.durable_tokens)
        tail = state.durable_tail
        named = [*state.keys[: state.durable_chunks], *([tail.key] if tail else [])]
        assert named == list(map(key, numbers)), name
