"""Sequences that grow in the workload: rows of several in one call, flushes, cuts and forks."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random

from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.tiers.chunks.requests import AppendItem, AppendRequest
from kvstored.tiers.sequences.sequences import Caller
from kvstored.tiers.tiered_store import TieredStore
from kvstored_contract.reasons import Reason
from tests.faults.power.chunks import NAMESPACE, ROWS, SEQUENCE_LAYOUT
from tests.faults.power.marks import SequenceMark, SequenceVerb
from tests.faults.sequence_model import Possible, SequenceModel
from tests.support.rows import TOKEN_IDS
from tests.support.waiting import wait_until

ME = Caller(NAMESPACE, 1)
NAMES = ("a", "b", "c", "d")
CHUNK_TOKENS = SEQUENCE_LAYOUT.chunk_tokens
APPENDED_MAX = 2 * CHUNK_TOKENS + 8
"""Rows that come at once as a prompt does; most come one by one."""
LENGTH_MAX = 5 * CHUNK_TOKENS
"""A sequence that is longer is cut: its chunks shall not fill the devices."""


class Growth:
    """Does random things to the sequences of one store and marks each of them.

    ``models`` are those that the last start has left, and are kept up to date. No two rows
    that are appended soon after each other have the same bytes.
    """

    def __init__(
        self, store: TieredStore, models: dict[str, SequenceModel], marks: int, *, first_token: int
    ) -> None:
        self._store = store
        self._models = models
        self._marks = marks
        self._tokens = count(first_token)
        self._framed: set[str] = set()
        """Sequences whose tail lies in DRAM: nothing of it need be loaded any more."""
        store.layouts.register(SEQUENCE_LAYOUT)
        for name in list(models):
            self._left(SequenceVerb.START, name)

    def step(self, random: Random) -> None:
        """One operation; one that is refused has changed nothing."""
        with suppress(SequenceStorageError):
            self._act(random)

    def _act(self, random: Random) -> None:
        free = next((one for one in NAMES if one not in self._models), None)
        if free is not None and len(self._models) < 2:
            self._create(free)
            return
        name = random.choice(list(self._models))
        model = self._models[name]
        if model.length > LENGTH_MAX:
            self._truncate(name, random.randrange(LENGTH_MAX))
            return
        match random.choices(tuple(SequenceVerb), weights=(1, 8, 5, 3, 3, 1, 1, 0))[0]:
            case SequenceVerb.CREATE if free is not None:
                self._create(free)
            case SequenceVerb.APPEND:
                chosen = random.sample(list(self._models), random.randint(1, len(self._models)))
                counts = (1, 1, random.randint(1, APPENDED_MAX))
                self._append({one: random.choice(counts) for one in chosen})
            case SequenceVerb.FLUSH:
                self._flush(name)
            case SequenceVerb.TRUNCATE:
                tail = model.length - model.complete
                most = random.choice((tail, tail, model.length))
                self._truncate(name, model.length - random.randint(0, most))
            case SequenceVerb.FORK if free is not None:
                self._fork(name, free, random.randint(0, model.complete // CHUNK_TOKENS))
            case SequenceVerb.END_SESSION:
                self.end_session()
            case _:
                self._delete(name)

    def settle(self) -> None:
        """Waits until the record of each sequence has followed its chunks."""
        for name in self._models:
            wait_until(partial(self._is_settled, name))

    def end_session(self) -> None:
        """Loses what is not flushed of open tails."""
        self._store.open_sequences.end_session(ME.session_id)
        self._framed.clear()
        for name in self._models:
            self._left(SequenceVerb.END_SESSION, name)

    def _is_settled(self, name: str) -> bool:
        state = self._store.sequences.get(ME, name)
        return state.durable_chunks == len(state.keys)

    def _left(self, verb: SequenceVerb, name: str) -> None:
        """Takes over what the store has left of a sequence.

        When that is less than was safe, no state behind the mark keeps its promise.
        """
        length = self._store.sequences.get(ME, name).length_tokens
        self._is_now(verb, name, self._models[name].left(length))
        left = self._models[name]
        self._models[name] = replace(left, safe=min(left.safe, length))

    def _create(self, name: str) -> None:
        model = SequenceModel(chunk_tokens=CHUNK_TOKENS)
        with self._changed(SequenceVerb.CREATE, name, None, model):
            self._store.sequences.create(ME, name, SEQUENCE_LAYOUT)

    def _append(self, counts: dict[str, int]) -> None:
        step: list[int] = []
        items, after = [], []
        for name, token_count in counts.items():
            model = self._models[name]
            tokens = [next(self._tokens) % TOKEN_IDS for _ in range(token_count)]
            longer = model.appended(tokens)
            # A flushed tail that was evicted meanwhile is a miss of this append.
            missed = () if name in self._framed else (model.cut(model.complete),)
            self._may_be(SequenceVerb.APPEND, name, (longer, *missed))
            after.append(longer)
            items.append(
                AppendItem(
                    name=name,
                    first_token=model.length,
                    first_row=len(step),
                    token_count=token_count,
                    keys=tuple(ROWS.keys(longer.tokens)[model.length // CHUNK_TOKENS :]),
                )
            )
            step += tokens
        outcomes = self._store.append_path.append(
            AppendRequest(
                namespace_id=ME.namespace_id,
                session_id=ME.session_id,
                layout=SEQUENCE_LAYOUT,
                row_count=len(step),
                source=memoryview(bytearray(ROWS.snapshot(step))),
                items=tuple(items),
            )
        )
        for item, longer, outcome in zip(items, after, outcomes, strict=True):
            model = longer.left(outcome.length_tokens)
            if outcome.reason is Reason.NOT_STORED:
                model = self._models[item.name].cut(outcome.length_tokens)
            assert model.safe <= model.length, (item, outcome, longer)
            assert outcome.reason is not Reason.SEQUENCE_CONFLICT, (item, outcome, longer)
            if outcome.reason is Reason.UNSPECIFIED:
                self._framed.add(item.name)
            self._is_now(SequenceVerb.APPEND, item.name, model)

    def _flush(self, name: str) -> None:
        begun = self._models[name].flush_begun()
        with self._changed(SequenceVerb.FLUSH, name, begun, begun.flush_done()):
            tail_key = ROWS.tail_key(begun.tokens)
            state = self._store.sequences.flush(ME, name, tail_key, begun.length)
            assert state.durable_tokens == begun.length, (state, begun)

    def _truncate(self, name: str, length: int) -> None:
        model = self._models[name]
        with self._changed(SequenceVerb.TRUNCATE, name, model, model.cut(length)):
            self._store.sequences.truncate_tokens(ME, name, model.length - length)

    def _fork(self, name: str, new_name: str, keep_chunks: int) -> None:
        model = self._models[name]
        with (
            self._changed(SequenceVerb.FORK, name, model, model.settled()),
            self._changed(SequenceVerb.FORK, new_name, None, model.forked(keep_chunks)),
        ):
            state = self._store.sequences.fork(ME, name, new_name, keep_chunks)
        # Without room in DRAM it has less of the tail.
        self._models[new_name] = model.forked(keep_chunks).left(state.length_tokens)

    def _delete(self, name: str) -> None:
        with self._changed(SequenceVerb.DELETE, name, self._models[name], None):
            self._store.sequences.delete(ME, name)

    @contextmanager
    def _changed(
        self,
        verb: SequenceVerb,
        name: str,
        before: SequenceModel | None,
        after: SequenceModel | None,
    ) -> Iterator[None]:
        """Marks a change that is durable when the body ends, or refused and not done."""
        self._may_be(verb, name, (before, after))
        try:
            yield
        except SequenceStorageError:
            # A chunk that it needs was evicted, or there is no room at this moment.
            self._is_now(verb, name, before)
            raise
        else:
            self._is_now(verb, name, after)

    def _may_be(self, verb: SequenceVerb, name: str, possible: Possible) -> None:
        SequenceMark(verb, name, possible, is_answer=False).write(self._marks)

    def _is_now(self, verb: SequenceVerb, name: str, model: SequenceModel | None) -> None:
        SequenceMark(verb, name, (model,), is_answer=True).write(self._marks)
        if model is None:
            self._models.pop(name, None)
            self._framed.discard(name)
        else:
            self._models[name] = model
