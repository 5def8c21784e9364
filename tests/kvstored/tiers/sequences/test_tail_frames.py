"""Flushed tails on a device that does not answer: who needs one waits until its own deadline."""

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId
from kvstored.io.engine import IoEngine
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.tiers.chunks import extent_load
from kvstored.tiers.chunks.requests import AppendOutcome
from kvstored.tiers.sequences import tail_frames
from kvstored.tiers.sequences.open_sequence import OpenSequence, SequenceId
from kvstored.tiers.sequences.sequences import Caller
from kvstored_contract.reasons import Reason
from tests.support.appends import (
    OTHER,
    ROWS,
    TOKENS,
    append,
    check_bytes,
    create,
    flush,
    open_bytes,
)
from tests.support.devices import (
    GatedDevice,
    OnceWrongDevice,
    Wrapping,
    WrongThenHeldDevice,
)
from tests.support.rows import MIXED
from tests.support.scale import Scale, at
from tests.support.stores import MIB, NAMESPACE, StoreUnderTest, open_store
from tests.support.waiting import SOON_S, soon, wait_until

SHORT_S = 0.05
LONGER_S = (SHORT_S, 10 * SHORT_S, 100 * SHORT_S)
"""What a call is given in turn, until it has had the time to ask the device before its deadline."""


def left_to_devices(opened: StoreUnderTest) -> None:
    """A sequence of 23 tokens whose chunks lie on the devices only, and that nobody has open."""
    create(opened, "a")
    append(opened, {"a": range(23)})
    flush(opened, "a", 23)
    opened.store.open_sequences.end_session(1)
    for key in (*ROWS.keys(TOKENS[:23]), ROWS.tail_key(TOKENS[:23])):
        opened.store._dram.drop(ChunkId(NAMESPACE, key))


def two_left_to_devices(opened: StoreUnderTest) -> tuple[int, int]:
    """Such a sequence and ``b`` of 39 tokens; on which devices their tails lie, two of them."""
    left_to_devices(opened)
    create(opened, "b")
    append(opened, {"b": range(39)})
    flush(opened, "b", 39)
    opened.store.open_sequences.end_session(1)
    tails = [ChunkId(NAMESPACE, ROWS.tail_key(TOKENS[:count])) for count in (23, 39)]
    opened.store._dram.drop(tails[1])
    first, second = [
        record.extent.device_index for record in opened.store._store.find(tails) if record
    ]
    assert first != second
    return first, second


class Scene:
    """Such a sequence on devices that do not answer."""

    def __init__(self, opened: StoreUnderTest, devices: Wrapping[GatedDevice]) -> None:
        self.opened = opened
        self._devices = devices
        self.answer()
        left_to_devices(opened)
        self.stall()

    def stall(self) -> None:
        for device in self._devices:
            device.gate.clear()

    def answer(self) -> None:
        for device in self._devices:
            device.gate.set()

    def check_late_frame(self) -> None:
        """It is the device's until that has answered, and nobody's afterwards."""
        assert open_bytes(self.opened) > 0
        self.answer()
        wait_until(lambda: open_bytes(self.opened) == 0, within_s=SOON_S)


@contextmanager
def stalled(path: Path) -> Iterator[Scene]:
    devices = Wrapping(GatedDevice)
    with open_store(path, dram_bytes=4 * MIB, wrap=devices) as opened:
        opened.store.layouts.register(MIXED)
        scene = Scene(opened, devices)
        try:
            yield scene
        finally:
            scene.answer()


def within(wait_s: float) -> Caller:
    """Somebody whose deadline is so far away."""
    return replace(OTHER, deadline=time.monotonic() + wait_s)


def late_append(scene: Scene) -> list[AppendOutcome]:
    """One whose tail was asked for, and did not come in time."""
    for wait_s in LONGER_S:
        late = within(wait_s)
        outcomes = soon(partial(append, scene.opened, {"a": range(23, 40)}, caller=late))
        if open_bytes(scene.opened):
            break
    return outcomes


def test_append_waited_without_end_for_the_tail_that_was_flushed(tmp_path: Path) -> None:
    """Bug: a drive was slow, and 10 s after the deadline the client ended its session."""
    with stalled(tmp_path) as scene:
        assert late_append(scene) == [AppendOutcome(23, Reason.DEADLINE)]
        scene.check_late_frame()
        assert append(scene.opened, {"a": range(23, 40)}, caller=OTHER) == [AppendOutcome(40)]
        check_bytes(scene.opened, 40)


def test_each_late_append_took_another_frame(tmp_path: Path) -> None:
    """Bug: while a device hung, appends with short deadlines used up the room for open chunks."""
    with stalled(tmp_path) as scene:
        late_append(scene)
        kept_bytes = open_bytes(scene.opened)
        late = within(10 * SHORT_S)
        assert soon(lambda: append(scene.opened, {"a": range(23, 40)}, caller=late)) == [
            AppendOutcome(23, Reason.DEADLINE)
        ]
        assert open_bytes(scene.opened) == kept_bytes
        scene.check_late_frame()


def check_only_the_first_waits(scene: Scene) -> None:
    """Of two items, of which the tail of the first has to be read."""
    step = threading.Thread(
        target=lambda: append(
            scene.opened, {"a": range(23, 40), "b": range(5)}, caller=within(SOON_S)
        )
    )
    step.start()
    sequences = scene.opened.store.sequences
    wait_until(lambda: sequences.get(OTHER, "b").length_tokens == 5, within_s=SOON_S)
    assert step.is_alive()
    scene.answer()
    step.join(SOON_S)
    assert sequences.get(OTHER, "a").length_tokens == 40


def test_an_item_whose_tail_is_read_held_up_the_others(tmp_path: Path) -> None:
    """Bug: they were sealed only then, with no time left for room on their devices."""
    with stalled(tmp_path) as scene:
        create(scene.opened, "b")
        check_only_the_first_waits(scene)


def test_a_tail_that_did_not_come_took_the_time_of_the_others(tmp_path: Path) -> None:
    """Bug: one device did not answer, and sequences with tails on the others were stopped, too."""
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        opened.store.layouts.register(MIXED)
        for device in devices:
            device.gate.set()
        stalled_index, _ = two_left_to_devices(opened)
        devices[stalled_index].gate.clear()
        late = within(20 * SHORT_S)
        outcomes = append(opened, {"a": range(23, 24), "b": range(39, 40)}, caller=late)
        devices[stalled_index].gate.set()
        assert outcomes == [AppendOutcome(23, Reason.DEADLINE), AppendOutcome(40)]


def test_a_tail_that_is_read_once_more_took_the_time_of_the_others(tmp_path: Path) -> None:
    """Bug: the thread of the call waited until the deadline for it, and then for nothing else."""
    devices = Wrapping(WrongThenHeldDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        opened.store.layouts.register(MIXED)
        first, second = (devices[index] for index in two_left_to_devices(opened))
        first.is_wrong, second.before = True, first.is_held
        late = within(4.0)
        outcomes: list[AppendOutcome] = []
        items = {"a": range(23, 24), "b": range(39, 40)}
        step = threading.Thread(target=lambda: outcomes.extend(append(opened, items, caller=late)))
        step.start()
        sequences = opened.store.sequences
        try:
            wait_until(lambda: sequences.get(OTHER, "b").length_tokens == 40, within_s=SOON_S)
            assert time.monotonic() < late.deadline
        finally:
            first.gate.set()
        step.join(SOON_S)
        assert outcomes == [AppendOutcome(23, Reason.DEADLINE), AppendOutcome(40)]


def test_tails_of_one_append_were_read_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: each that stalled took half of the time that was left, and the last ones had none."""
    begun: list[ChunkId] = []
    load = extent_load.load_extent

    def noted(engine: IoEngine, source: StoredChunk, *rest: Any, **named: Any) -> Any:
        begun.append(source.chunk)
        return load(engine, source, *rest, **named)

    lengths = {"a": 23, "b": 39, "c": 21}
    with stalled(tmp_path) as scene:
        scene.answer()
        for name, length in list(lengths.items())[1:]:
            create(scene.opened, name)
            append(scene.opened, {name: range(length)})
            flush(scene.opened, name, length)
            scene.opened.store._dram.drop(ChunkId(NAMESPACE, ROWS.tail_key(TOKENS[:length])))
        scene.opened.store.open_sequences.end_session(1)
        scene.stall()
        monkeypatch.setattr(tail_frames, "load_extent", noted)
        parts = {name: range(length, length + 1) for name, length in lengths.items()}
        outcomes: list[AppendOutcome] = []
        late = within(4 * SOON_S)
        step = threading.Thread(
            target=lambda: outcomes.extend(append(scene.opened, parts, caller=late))
        )
        step.start()
        try:
            wait_until(lambda: len(begun) == len(lengths), within_s=SOON_S)
        finally:
            scene.answer()
            step.join()
        assert outcomes == [AppendOutcome(length + 1) for length in lengths.values()]


@at(Scale.QUICK)
def test_an_item_whose_sequence_was_just_looked_at_waited_for_the_tail_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it was left out of the first round, and came after the items that are read for."""
    with stalled(tmp_path) as scene:
        create(scene.opened, "b")
        sequences = scene.opened.store.append_path._sequences
        held_if_free = sequences.held_if_free
        rounds = itertools.count()

        def held(
            identities: Iterable[SequenceId], wait_until: float
        ) -> AbstractContextManager[list[OpenSequence]]:
            # In the first round somebody else holds the second one.
            free = list(identities)[:1] if next(rounds) == 0 else identities
            return held_if_free(free, wait_until)

        monkeypatch.setattr(sequences, "held_if_free", held)
        check_only_the_first_waits(scene)


def test_an_item_that_fails_while_it_waits_leaves_the_others_their_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the client heard that the call failed, though rows were taken."""
    with stalled(tmp_path) as scene:
        create(scene.opened, "b")

        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(scene.opened.store.append_path._tails, "end", fail)
        late = within(20 * SHORT_S)
        assert append(scene.opened, {"a": range(23, 40), "b": range(5)}, caller=late) == [
            AppendOutcome(23, Reason.INTERNAL),
            AppendOutcome(5),
        ]


def test_truncation_that_waits_for_a_chunk_until_its_deadline_changes_nothing(
    tmp_path: Path,
) -> None:
    with stalled(tmp_path) as scene:
        for wait_s in LONGER_S:
            late = within(wait_s)
            with pytest.raises(SequenceStorageError, match="DEADLINE"):
                soon(partial(scene.opened.store.sequences.truncate_tokens, late, "a", 3))
            if open_bytes(scene.opened):
                break
        assert scene.opened.store.sequences.get(OTHER, "a").length_tokens == 23
        scene.check_late_frame()
        assert scene.opened.store.sequences.truncate_tokens(OTHER, "a", 3).length_tokens == 20


def test_one_wrong_transfer_cut_a_durable_sequence(tmp_path: Path) -> None:
    """Bug: its tail was read once, the sound chunk quarantined, and the record cut before it."""
    devices = Wrapping(OnceWrongDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        opened.store.layouts.register(MIXED)
        left_to_devices(opened)
        for device in devices:
            device.is_wrong = True
        assert append(opened, {"a": range(23, 40)}, caller=OTHER) == [AppendOutcome(40)]
        for device in devices:
            device.is_wrong = False
        check_bytes(opened, 40)
        counters = opened.stats().counters
        assert (counters["unconfirmed_chunks"], counters.get("quarantined_chunks")) == (1, None)


def test_a_tail_that_two_reads_find_damaged_is_lost(tmp_path: Path) -> None:
    with open_store(tmp_path, dram_bytes=4 * MIB) as opened:
        opened.store.layouts.register(MIXED)
        left_to_devices(opened)
        (status,), _ = opened.store.inspection.list_chunks(ROWS.tail_key(TOKENS[:23]).hex(), 1)
        opened.devices[status.device_index].media[status.offset + HEADER_BYTES] ^= 1
        outcomes = append(opened, {"a": range(23, 40)}, caller=OTHER)
        assert outcomes == [AppendOutcome(16, Reason.CHECKSUM)]
        assert "unconfirmed_chunks" not in opened.stats().counters
