"""Sequences that a client lets grow until the daemon is killed, and what they may be then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from kvstored_client import AppendItem, Client, NoRoomError, SequenceInfo
from kvstored_contract.reasons import Reason
from tests.faults.kill.ledger import ViolationError
from tests.faults.kill.payload import SMALL, fetch_keys
from tests.faults.sequence_model import Possible, RecoveredSequence, SequenceModel, judge
from tests.support.rows import TOKEN_IDS, Rows

ROWS = Rows(SMALL)
CHUNK_TOKENS = SMALL.chunk_tokens


class Conversations:
    """The sequences of one store: what each of them may be, and the calls that change them.

    A call without an answer leaves what was before beside what would be behind it. Where the
    store ``evicts``, chunks may be gone. ``on_used`` hears how many chunks became younger than
    others. Not thread-safe. Everything raises StoreError without an answer, and ViolationError.
    """

    def __init__(
        self,
        *,
        first_token: int = 0,
        evicts: bool = False,
        on_used: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._evicts = evicts
        self._on_used = on_used
        self._tokens = count(first_token)
        self._possible: dict[str, Possible] = {}
        self._framed: set[str] = set()
        """Sequences whose tail lies in DRAM: nothing of it need be loaded any more."""
        self._keys: set[bytes] = set()
        self.acked_flushes = 0
        self.verified_sequences = 0
        self.verified_tails = 0

    @property
    def models(self) -> dict[str, SequenceModel]:
        """The sequences of which it is certain what they are."""
        certain = {name: one for name, (one, *others) in self._possible.items() if not others}
        return {name: model for name, model in certain.items() if model is not None}

    @property
    def key_count(self) -> int:
        """Chunks that may be stored."""
        return len(self._keys)

    def is_framed(self, name: str) -> bool:
        """Whether it can be cut inside its tail although chunks are evicted."""
        return name in self._framed

    def create(self, client: Client, name: str) -> None:
        """Makes a sequence."""
        with self._changed(name, None, SequenceModel(chunk_tokens=CHUNK_TOKENS)):
            client.sequences.create(name, SMALL)

    def append(self, client: Client, counts: dict[str, int]) -> None:
        """Appends so many rows to each of some sequences, in one call."""
        step: list[int] = []
        items, longer = [], []
        for name, token_count in counts.items():
            before = self.models[name]
            tokens = [next(self._tokens) % TOKEN_IDS for _ in range(token_count)]
            after = before.appended(tokens)
            keys = ROWS.keys(after.tokens)[before.length // CHUNK_TOKENS :]
            self._stores(keys)
            missed = (before.cut(before.complete),) if self._may_miss(name) else ()
            self._possible[name] = (after, *missed)
            longer.append(after)
            items.append(
                AppendItem(
                    sequence=name,
                    first_token=before.length,
                    first_row=len(step),
                    token_count=token_count,
                    keys=keys,
                )
            )
            step += tokens
        payload = ROWS.snapshot(step)
        region = client.allocate(len(payload))
        assert region is not None
        with region:
            region.view[:] = payload
            report = client.append(SMALL, region, len(step), items)
        for item, after, result in zip(items, longer, report.results, strict=True):
            name, length = item.sequence, result.length_tokens
            if result.is_taken:
                self._framed.add(name)
                self._possible[name] = (after,)
            elif result.reason is Reason.DRAM_FULL:
                self._possible[name] = (after.left(length),)
            elif result.reason is Reason.NOT_STORED and self._may_miss(name):
                self._possible[name] = (after.left(item.first_token).cut(length),)
            else:
                raise ViolationError(f"rows of sequence {name} are refused: {result}")

    def flush(self, client: Client, name: str) -> None:
        """Makes a sequence durable with its tail."""
        begun = self.models[name].flush_begun()
        tail_key = ROWS.tail_key(begun.tokens)
        self._stores([tail_key] if tail_key else [])
        with self._changed(name, begun, begun.flush_done()):
            info = client.sequences.flush(
                name, tail_key, expected_tokens=begun.length, timeout_ms=60_000
            )
            assert info is not None
            if info.durable_tokens != begun.length:
                raise ViolationError(f"a flush of {begun.length} tokens is answered with {info}")
            self.acked_flushes += 1

    def truncate(self, client: Client, name: str, length: int) -> None:
        """Cuts a sequence."""
        before = self.models[name]
        with self._changed(name, before, before.cut(length)):
            client.sequences.truncate_tokens(name, before.length - length)

    def fork(self, client: Client, name: str, new_name: str, keep_chunks: int = 0) -> None:
        """Forks a sequence, with its first chunks or (0) with all and its tail."""
        before = self.models[name]
        after = before.forked(keep_chunks)
        with self._changed(name, before, before.settled()), self._changed(new_name, None, after):
            info = client.sequences.fork(name, new_name, keep_chunks=keep_chunks)
            assert info is not None
        if info.staged_tokens < after.length:
            # DRAM had no room for a copy of the tail.
            self._possible[new_name] = (after.left(info.staged_tokens),)

    def delete(self, client: Client, name: str) -> None:
        """Deletes a sequence."""
        with self._changed(name, self.models[name], None):
            client.sequences.delete(name)

    def retire(self, client: Client) -> None:
        """Deletes all sequences, and then all chunks that any of them has named."""
        for name in self.models:
            self.delete(client, name)
        client.delete(sorted(self._keys))
        self._keys.clear()

    def verify(self, client: Client) -> None:
        """Judges what a start has found, and reads every row of it."""
        self._framed.clear()
        for name in client.sequences.list():
            self._possible.setdefault(name, (None,))
        for name, possible in sorted(self._possible.items()):
            info = client.sequences.get(name)
            model = verify_found(client, name, possible, info, evicts=self._evicts)
            if model is None or info is None:
                self._possible[name] = (None,)
                continue
            if (info.staged_tokens, info.is_stopped) != (info.durable_tokens, False):
                raise ViolationError(f"sequence {name} is not what its record says: {info}")
            self._on_used(len(info.keys) + bool(info.tail_key))
            self._possible[name] = (model.recovered(info.durable_tokens),)
            self.verified_sequences += 1
            self.verified_tails += bool(info.tail_key)

    def _may_miss(self, name: str) -> bool:
        return self._evicts and name not in self._framed

    def _stores(self, keys: list[bytes]) -> None:
        self._keys.update(keys)
        self._on_used(len(keys))

    @contextmanager
    def _changed(
        self, name: str, before: SequenceModel | None, after: SequenceModel | None
    ) -> Iterator[None]:
        """A change that is durable when the body ends; where there is no room it is not done."""
        self._possible[name] = (before, after)
        try:
            yield
        except NoRoomError:
            self._possible[name] = (before,)
        else:
            self._possible[name] = (after,)


def verify_found(
    client: Client,
    name: str,
    possible: Possible,
    info: SequenceInfo | None,
    *,
    evicts: bool = False,
) -> SequenceModel | None:
    """Which of the possibilities a sequence is, all of whose rows are read and compared.

    Raises ViolationError.
    """
    found = None
    if info is not None:
        found = RecoveredSequence(
            length_tokens=info.durable_tokens, keys=info.keys, tail_key=info.tail_key
        )
    model, problem = judge(possible, found, ROWS)
    if problem is not None:
        raise ViolationError(f"sequence {name}: {problem}")
    if model is None or found is None:
        return None
    contents = fetch_keys(client, SMALL, found.chunk_keys)
    chunks = zip(contents, model.chunk_slices(found, ROWS), strict=True)
    for index, (content, slices) in enumerate(chunks):
        if content is None:
            if not evicts:
                raise ViolationError(f"sequence {name} names chunk {index}, which is lost")
            continue
        for layer, expected in enumerate(slices):
            if content[layer * SMALL.layer_stride :][: len(expected)] != expected:
                raise ViolationError(
                    f"sequence {name}, chunk {index}, layer {layer}: other bytes than were "
                    "appended there"
                )
    return model
