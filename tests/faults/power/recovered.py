"""The sequences that a start has found against those that a cut may leave, and their rows."""

from kvstored.format.identity import ChunkId
from kvstored.store.sequences.rules import SequenceUnknownError
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.tiers.sequences.sequences import Caller
from kvstored.tiers.tiered_store import TieredStore
from tests.faults.power.chunks import NAMESPACE, ROWS, SEQUENCE_LAYOUT, number_of
from tests.faults.power.marks import Ledger, Promise
from tests.faults.power.served import Slices, read_slices
from tests.faults.sequence_model import RecoveredSequence, judge

SOMEBODY = Caller(NAMESPACE, 1)


def broken_sequences(store: TieredStore, ledger: Ledger) -> list[str]:
    """What contradicts the ledger: lengths, names, and the bytes of every row that is served."""
    names = {*ledger.sequences, *store.sequences.list(SOMEBODY)}
    recovered = {name: _recovered(store, name) for name in sorted(names)}
    keys = {key: None for found in recovered.values() if found for key in found.chunk_keys}
    served = dict(zip(keys, read_slices(store, SEQUENCE_LAYOUT, list(keys)), strict=True))
    broken = []
    for name, found in recovered.items():
        model, problem = judge(ledger.sequences.get(name, (None,)), found, ROWS)
        if problem is not None:
            broken.append(f"sequence {name}: {problem}")
        if model is None or found is None:
            continue
        for key, expected in zip(found.chunk_keys, model.chunk_slices(found, ROWS), strict=True):
            number = number_of(ChunkId(NAMESPACE, key))
            promise = ledger.promises.get(number, Promise())
            problem = chunk_problem(served[key], expected, promise)
            if problem is not None:
                broken.append(f"sequence {name}, chunk {key.hex()[:8]}: {problem}")
    return broken


def chunk_problem(slices: Slices, expected: list[bytes], promise: Promise) -> str | None:
    """What is wrong with what is served of a chunk that a record names."""
    served = [
        part == whole[: len(part)]
        for whole, part in zip(slices, expected, strict=True)
        if whole is not None
    ]
    if not all(served):
        return "it has other bytes than were appended there"
    if len(served) == len(slices):
        return None
    if promise.required is not None:
        return "it was durable and is lost"
    # Else it was evicted, or was about to be: a sequence does not hold its chunks.
    return None if promise.was_durable else "it is named and was never durable"


def _recovered(store: TieredStore, name: str) -> RecoveredSequence | None:
    try:
        state: SequenceState = store.sequences.get(SOMEBODY, name)
    except SequenceUnknownError:
        return None
    tail = state.durable_tail
    return RecoveredSequence(
        length_tokens=state.durable_tokens,
        keys=state.keys,
        tail_key=tail.key if tail else b"",
    )
