"""Records of sequences follow their chunks, also those that settle while the daemon stops."""

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kvstored.tiers.sequences import sequence_recorder
from kvstored.tiers.sequences.open_sequence import OpenSequence, SequenceId
from kvstored.tiers.sequences.open_sequences import OpenSequences
from tests.support.appends import ME, TOKENS, append, create
from tests.support.devices import GatedDevice, Wrapping
from tests.support.stores import MIB, NAMESPACE, open_store
from tests.support.waiting import PATIENCE_S, wait_until

CHUNK_TOKENS = 16


class Looks:
    """Counts how often the recorder looks for sequences that are free."""

    def __init__(self, opened: OpenSequences) -> None:
        self.count = 0
        self._inner = opened.held_if_free
        opened.held_if_free = self._look  # type: ignore[assignment, method-assign]

    def _look(self, identities: Iterable[SequenceId]) -> AbstractContextManager[list[OpenSequence]]:
        self.count += 1
        return self._inner(identities)


def recorded_chunks(path: Path, *, is_freed: bool) -> int:
    """Closes the recorder while a sequence with one chunk more is in use.

    Chunks in its record behind that; ``is_freed`` when the sequence is given back meanwhile.
    """
    devices = Wrapping(GatedDevice)
    with open_store(path, dram_bytes=4 * MIB, wrap=devices) as opened:
        create(opened, "a")
        append(opened, {"a": range(CHUNK_TOKENS + 1)}, tokens=TOKENS)
        store = opened.store
        identity = store.open_sequences.resolve(NAMESPACE, ME.session_id, "a")
        looks = Looks(store.open_sequences)
        closing = threading.Thread(target=store.append_path._recorder.close)
        with store.open_sequences.held([identity]) as held:
            (durable,) = held[identity].pending.values()
            for device in devices:
                device.gate.set()
            durable.result(PATIENCE_S)
            closing.start()
            if is_freed:
                # By the second look what is in use was put back behind the end mark.
                seen = looks.count
                wait_until(lambda: looks.count > seen + 1 or not closing.is_alive())
            else:
                closing.join(PATIENCE_S)
        closing.join(PATIENCE_S)
        assert not closing.is_alive()
        return len(store.open_sequences.table.get(NAMESPACE, "a").keys)


def test_what_settled_while_a_sequence_was_in_use_was_never_recorded_at_close(
    tmp_path: Path,
) -> None:
    """Bug: it was put back after the end mark, and the thread ended at that."""
    assert recorded_chunks(tmp_path, is_freed=True) == 1


def test_a_sequence_that_stays_in_use_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sequence_recorder, "CLOSE_WAIT_S", 0.05)
    assert recorded_chunks(tmp_path, is_freed=False) == 0
    assert "in use until the end" in caplog.text
