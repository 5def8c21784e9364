"""SQLite's method: the N-th call of any device fails, for every N until a run meets no fault.

Devices have a volatile cache, so what is acknowledged is looked for in what was flushed.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field

from kvstored.format.errors import FormatError
from kvstored.io.device import Device, DeviceError
from kvstored.io.faults.cache import VolatileCache
from kvstored.io.faults.calls import FailingCalls, Fuse
from kvstored.store.index.index import IndexFailure
from kvstored.store.read.plan import Order
from kvstored.store.sequences.rules import SequenceConflictError
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored_contract.reasons import Reason
from tests.faults.media.growing import CHUNK_TOKENS, Grower, GrownChunks
from tests.faults.media.lab import Lab, Start, fresh_lab, scratch_folder
from tests.faults.media.served import LAYOUT, ServedStore, quiesce
from tests.support.devices import Wrapping
from tests.support.sequence_model import SequenceModel

DEVICES = 2
SLABS = 2
EXTENTS_PER_SLAB = 7
CAPACITY = DEVICES * SLABS * EXTENTS_PER_SLAB
READ_TIMEOUT_S = 20.0
"""Far more than a read takes, and what it may take at most."""
REFUSALS = (DeviceError, FormatError, IndexFailure)
"""What a start may raise: each is one sentence for the operator."""
SEQUENCE = "conversation"
TOKENS = [number * 37 % 512 for number in range(200)]
FLUSHED = 20
"""Tokens of a sequence that is there: a chunk and a short one."""
GROWN = GrownChunks()
FAULTS = {Reason.DEVICE_FAILED, Reason.STORE_FULL}
"""Why an append or a flush may be refused; STORE_FULL without a device that is left."""


class FusedDevice(FailingCalls):
    """A device with a volatile cache whose calls burn a fuse once one is set."""

    def __init__(self, inner: Device) -> None:
        self.cache = VolatileCache(inner)
        super().__init__(self.cache)

    def repair(self) -> None:
        """No call fails any more, except after a failed flush."""
        self.fuse = None
        self.broken = set()


@dataclass(slots=True)
class Trial:
    """An open store in which the N-th call from now on fails.

    ``acknowledged`` are the chunks that were durable before or were said to be so.
    """

    served: ServedStore
    devices: list[FusedDevice]
    acknowledged: set[int] = field(default_factory=set)
    sequence: SequenceModel | None = None

    def __post_init__(self) -> None:
        self.served.grown = GROWN.slices
        self.served.store.layouts.register(LAYOUT)

    @property
    def grower(self) -> Grower:
        """The session that appends."""
        return Grower(self.served, GROWN, session_id=1)

    def arm(self, fuse: Fuse | None) -> None:
        """Counts the calls of all devices together."""
        for device in self.devices:
            device.fuse = fuse

    def put(self, numbers: list[int]) -> None:
        """Puts chunks; what is said to be durable is remembered."""
        reasons = self.served.put_settled(numbers, timeout_s=READ_TIMEOUT_S)
        self.acknowledged |= {
            number
            for number, reason in zip(numbers, reasons, strict=True)
            if reason is Reason.UNSPECIFIED
        }

    def grow(self, count: int) -> None:
        """Appends and flushes; what is said to be durable is remembered.

        A flushed tail is never lost, because nothing is evicted or damaged.
        """
        assert self.sequence is not None
        model = self.sequence
        model.is_now(self.grower.settled(SEQUENCE).length_tokens)
        length = len(model.tokens)
        (outcome,) = self.grower.append([(SEQUENCE, model, TOKENS[length : length + count])])
        assert outcome.reason in {Reason.UNSPECIFIED, *FAULTS}, outcome
        model.is_now(outcome.length_tokens)
        try:
            self.grower.flush(SEQUENCE, model)
        except (SequenceStorageError, SequenceConflictError) as error:
            self.check_refusal(error)
        self.acknowledged |= set(GROWN.numbers(model, model.safe))

    def check_refusal(self, error: SequenceStorageError | SequenceConflictError) -> None:
        """A flush that is not answered has met the fault, before or after its look."""
        if isinstance(error, SequenceStorageError):
            assert error.reason in FAULTS, error
        else:
            assert self.grower.settled(SEQUENCE).is_stopped, error

    def rest(self) -> tuple[set[int], SequenceModel | None]:
        """Waits until no chunk is on its way; what must be left of a crash at this moment."""
        if self.sequence is not None:
            self.sequence.is_now(self.grower.settled(SEQUENCE).length_tokens)
        return set(self.acknowledged), deepcopy(self.sequence)

    def read_all_ways(self, numbers: list[int]) -> None:
        """Reads in every order, all layers and some; what is served is compared."""
        for order in Order:
            for first_layer, layer_count in ((0, 4), (1, 2)):
                self.served.read(
                    numbers,
                    order=order,
                    first_layer=first_layer,
                    layer_count=layer_count,
                    timeout_s=READ_TIMEOUT_S,
                )
        quiesce(self.served)


Operation = Callable[[Trial], None]
BEFORE = list(range(6))
STORED = [*BEFORE, *GROWN.numbers(SequenceModel(CHUNK_TOKENS, tokens=TOKENS[:FLUSHED]), FLUSHED)]


def put_into_fresh(trial: Trial) -> None:
    """Opens slabs, writes, flushes."""
    trial.put(BEFORE)
    trial.put([6, 7, 8])


def read_stored(trial: Trial) -> None:
    """Reads everything from the devices, often enough that it is promoted into DRAM."""
    trial.served.forget_dram(BEFORE)
    trial.read_all_ways(BEFORE)


def evict(trial: Trial) -> None:
    """Puts into a full store."""
    trial.put([100, 101, 102, 103])
    trial.put([104, 105])


def append(trial: Trial) -> None:
    """Loads the flushed tail, seals chunks, and flushes short ones."""
    trial.put([6, 7])
    for count in (3, 15, 20):
        trial.grow(count)


def prepare_nothing(_: Trial) -> None:
    """A fresh store."""


def prepare_some(trial: Trial) -> None:
    """Some chunks, durable."""
    trial.put(BEFORE)


def prepare_full(trial: Trial) -> None:
    """A full store."""
    trial.put(list(range(CAPACITY)))


def prepare_sequence(trial: Trial) -> None:
    """A sequence that nobody has open, its flushed tail on a device only."""
    trial.sequence = trial.grower.create(SEQUENCE)
    trial.grow(FLUSHED)
    assert trial.sequence.safe == FLUSHED
    trial.served.store.open_sequences.end_session(1)
    trial.served.forget_dram(trial.acknowledged)


OPERATIONS: dict[str, tuple[Operation, Operation]] = {
    "put": (prepare_nothing, put_into_fresh),
    "read": (prepare_some, read_stored),
    "evict": (prepare_full, evict),
    "append": (prepare_sequence, append),
}


def run_operation(name: str, nth: int, *, for_ever: bool) -> bool:
    """One run with the ``nth`` call failing; whether there were so many calls.

    Raises AssertionError where a promise is broken.
    """
    prepare, operate = OPERATIONS[name]
    fuse = Fuse(nth, for_ever=for_ever)
    devices = Wrapping(FusedDevice)
    with fresh_lab(device_count=DEVICES, slab_count=SLABS) as lab:
        with lab.open(devices) as served:
            trial = Trial(served, devices)
            prepare(trial)
            trial.arm(fuse)
            operate(trial)
            trial.read_all_ways(sorted(trial.acknowledged))
            quiesce(served)
            lost = trial.acknowledged - set(served.records())
            assert len(lost) <= served.counter("evicted_chunks"), lost
            acknowledged, kept = trial.rest()
            left = lab.left_now(served, lab.folder / "left")
            for device in devices:
                device.repair()
            assert_grows(trial)
            assert_room(trial)
        assert_durable(left, acknowledged - lost, sequence=kept)
    return fuse.is_met


def run_recovery(stopped: Lab, start: Start, nth: int, *, for_ever: bool) -> bool:
    """The same for the start of a store that holds ``STORED``, on a copy of it.

    A rebuild does not bring sequences back.
    """
    fuse = Fuse(nth, for_ever=for_ever)
    devices = Wrapping(FusedDevice)
    lost: set[int] = set()
    sequence = None if start is Start.REBUILD else stored_sequence()

    def wrap(inner: Device) -> FusedDevice:
        device = devices(inner)
        device.fuse = fuse
        return device

    with scratch_folder() as folder:
        images = [device.media for device in stopped.devices]
        lab = Lab.of(folder / "lab", stopped.index_path, images)
        try:
            with lab.open(wrap, start=start) as served:
                trial = Trial(served, devices, set(STORED), sequence)
                trial.read_all_ways(STORED)
                trial.put([6, 7])
                if sequence is not None:
                    trial.grow(15)
                for device in devices:
                    device.repair()
                if start is Start.REBUILD and for_ever and fuse.is_met:
                    # What cannot be read twice is lost to a rebuild, and nothing else is.
                    lost = set(STORED) - set(served.records())
                acknowledged, kept = trial.rest()
                left = lab.left_now(served, folder / "left")
                assert_grows(trial)
                assert_room(trial)
                assert_durable(left, acknowledged - lost, sequence=kept)
                return fuse.is_met
        except REFUSALS as error:
            if not for_ever and "read failed" in str(error):
                raise
        # The start was refused: what was there is there at the next one.
        assert fuse.is_met
        next_start = Start.REBUILD if start is Start.REBUILD else Start.WALK
        assert_durable(lab, set(STORED), start=next_start, sequence=sequence)
    return True


def assert_grows(trial: Trial) -> None:
    """Where no device has failed stop, what was refused can be appended now."""
    model = trial.sequence
    if model is not None and not trial.served.store._store.failures.devices:
        trial.grow(1)
        length = len(model.tokens)
        trial.grow(CHUNK_TOKENS)
        assert len(model.tokens) == model.safe == length + CHUNK_TOKENS, model


def assert_room(trial: Trial) -> None:
    """Everything is released: emptied, healthy devices take as many chunks as they can hold."""
    served = trial.served
    served.store.open_sequences.end_session(1)
    assert served.store._dram.open_frames.byte_count == 0
    served.assert_released()
    served.delete(served.records())
    evicted_count = served.counter("evicted_chunks")
    healthy = DEVICES - len(served.store._store.failures.devices)
    numbers = list(range(1000, 1000 + healthy * SLABS * EXTENTS_PER_SLAB))
    if numbers:
        served.put_durable(numbers)
        served.forget_dram(numbers)
        assert served.whole(numbers) == set(numbers)
    assert served.counter("evicted_chunks") == evicted_count, "there is less room than before"
    served.assert_released()


def assert_durable(
    lab: Lab,
    acknowledged: set[int],
    *,
    start: Start = Start.WALK,
    sequence: SequenceModel | None = None,
) -> None:
    """A start on healthy devices finds all that was acknowledged."""
    with lab.open(start=start) as served:
        trial = Trial(served, [])
        missing = acknowledged - served.whole(sorted(acknowledged))
        assert not missing, f"acknowledged and not there: {sorted(missing)}"
        if sequence is not None:
            sequence.lose(trial.grower.state(SEQUENCE).durable_tokens)
            trial.grower.check_names(SEQUENCE, sequence)


def count_up(run: Callable[[int], bool], *, first: int = 1, step: int = 1) -> int:
    """Runs with N = first, first + step, ... until one meets no fault; the last N that did."""
    return next(nth for nth in itertools.count(first, step) if not run(nth)) - step


@contextmanager
def stopped_store() -> Iterator[Lab]:
    """A store that holds ``STORED``, as chunks and a sequence, and was stopped cleanly."""
    with fresh_lab(device_count=DEVICES, slab_count=SLABS) as lab:
        with lab.open() as served:
            served.stops_cleanly = True
            served.put_durable(BEFORE)
            prepare_sequence(Trial(served, []))
        yield lab


def stored_sequence() -> SequenceModel:
    """The sequence of ``stopped_store``."""
    return SequenceModel(CHUNK_TOKENS, tokens=TOKENS[:FLUSHED], safe=FLUSHED, flushed={FLUSHED})
