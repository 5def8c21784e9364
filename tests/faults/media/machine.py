"""Hypothesis drives a store against the model, over devices that go wrong.

The store may lose what the model says it may lose: what was evicted, what is damaged, what
lies on a failed device while that has failed, what was not acknowledged at a crash. It never
serves other bytes than the model's, and everything else that was acknowledged is there.
"""

import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import ChunkGeometry
from kvstored.format.identity import ChunkId
from kvstored.store.read.plan import Order
from kvstored.tiers.chunks.requests import PutOutcome
from tests.faults.media.lab import Start, fresh_lab
from tests.faults.media.machine_device import MachineDevice
from tests.faults.media.model import Model
from tests.faults.media.served import (
    EXTENT_BYTES,
    LAYERS,
    LAYOUT,
    RESIDENT,
    ServedStore,
    chunk_id,
    quiesce,
)
from tests.support.devices import Wrapping
from tests.support.stores import NAMESPACE, key
from tests.support.waiting import PATIENCE_S

DEVICES = 2
NUMBERS_COUNT = 40
NUMBERS = st.integers(0, NUMBERS_COUNT - 1)
"""More chunks than the 28 that the devices hold."""
SOME = st.lists(NUMBERS, min_size=1, max_size=6, unique=True)
DEVICE = st.integers(0, DEVICES - 1)
CALLS = ("read", "write", "flush")
WRITES = ("torn", "lost", "misdirected")
RESTARTS = ("stop", "crash", "put and crash", "crash before any write")
DICE = st.integers(0, 2**32 - 1)
SHUT_S = 1.0
"""Of a put while chunks wait at the gates: the header of a slab may wait for them."""


def told(step: Callable[..., None], *, is_listed: bool = True) -> Callable[..., None]:
    """Adds the steps so far to what a step raises: threads may end a repetition otherwise."""

    @wraps(step)
    def run(machine: "StoreMachine", **values: object) -> None:
        if is_listed:
            machine.journal.append(f"{step.__name__}({values})")
        try:
            step(machine, **values)
        except BaseException as error:
            error.add_note("\n".join(machine.journal))
            raise

    return run


watched = partial(told, is_listed=False)


class StoreMachine(RuleBasedStateMachine):
    """One store from its format on, through crashes and stops."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.journal: list[str] = []
        self.pinned: list[tuple[ChunkId, ...]] = []
        self.gone_count = 0
        self.had_faults = False
        self.may_have_damaged = False
        """Since the last start: a write that ended badly, or one to come."""
        self.damaged_for_good: dict[int, ChunkRecord] = {}
        self.life = ExitStack()
        self.lab = self.life.enter_context(fresh_lab(device_count=DEVICES, slab_count=2))
        self.session = ExitStack()
        self.devices: Wrapping[MachineDevice] = Wrapping(MachineDevice)
        self.served: ServedStore
        self.start(Start.WALK)

    def start(self, how: Start) -> None:
        self.devices = Wrapping(MachineDevice)
        self.served = self.session.enter_context(self.lab.open(self.devices, start=how))
        self.served.may_be = self.model.may_be
        self.pinned.clear()
        self.gone_count = 0
        self.had_faults = False
        self.may_have_damaged = False

    def teardown(self) -> None:
        for device in self.devices:
            device.gate.set()
        self.session.close()
        self.life.close()

    @initialize(numbers=st.lists(NUMBERS, min_size=10, max_size=25, unique=True))
    @told
    def begin(self, numbers: list[int]) -> None:
        self.stage(numbers)
        self.model.settle_all()

    # What clients do.

    @rule(numbers=SOME, waits=st.booleans())
    @told
    def put(self, numbers: list[int], waits: bool) -> None:
        self.stage(numbers)
        if waits:
            for number in numbers:
                self.model.settle(number)

    @rule(numbers=st.lists(NUMBERS, min_size=12, max_size=24, unique=True))
    @told
    def put_many(self, numbers: list[int]) -> None:
        self.stage(numbers)

    @rule(
        numbers=SOME,
        order=st.sampled_from(Order),
        layers=st.tuples(st.integers(0, LAYERS - 1), st.integers(1, LAYERS)),
        takes_transfers=st.booleans(),
        from_devices=st.booleans(),
    )
    @told
    def read(
        self,
        numbers: list[int],
        order: Order,
        layers: tuple[int, int],
        takes_transfers: bool,
        from_devices: bool,
    ) -> None:
        if from_devices:
            self.model.settle_all()
            self.served.forget_dram(numbers)
        first_layer, layer_count = layers[0], min(layers[1], LAYERS - layers[0])
        self.compare(
            numbers,
            order=order,
            first_layer=first_layer,
            layer_count=layer_count,
            takes_transfers=takes_transfers,
        )

    @rule(order=st.sampled_from(Order))
    @told
    def read_all(self, order: Order) -> None:
        """The fastest tier of each chunk serves it."""
        self.compare(list(range(NUMBERS_COUNT)), order=order)

    @rule(numbers=SOME)
    @told
    def delete(self, numbers: list[int]) -> None:
        self.served.delete(numbers)
        for number in numbers:
            self.model.was_deleted(number)
        assert not self.served.whole(numbers)

    @rule(numbers=SOME)
    @told
    def pin(self, numbers: list[int]) -> None:
        self.pinned.append(self.served.store.pin(NAMESPACE, list(map(key, numbers))))

    @precondition(lambda self: self.pinned)
    @rule()
    @told
    def unpin(self) -> None:
        self.served.store.unpin(self.pinned.pop())

    # What happens to the machine.

    @rule(how=st.sampled_from(RESTARTS), numbers=SOME, dice=DICE)
    @told
    def restart(self, how: str, numbers: list[int], dice: int) -> None:
        """Crashes, in the middle of a put or not, or stops cleanly."""
        if how == "stop":
            self.stop_and_start()
            return
        if how == "crash before any write":
            # Else what waits at the gates could fill the memory that this put needs.
            self.model.settle_all()
            for device in self.devices:
                device.gate.clear()
        if how != "crash":
            is_shut = how == "crash before any write"
            self.stage(numbers, timeout_s=SHUT_S if is_shut else PATIENCE_S)
        self.crash(random.Random(dice))

    @rule(device=DEVICE, what=st.sampled_from([*CALLS, *WRITES, "repair", "repair"]))
    @told
    def go_wrong(self, device: int, what: str) -> None:
        """Calls of a kind fail until they are repaired, or the next write ends badly.

        What has failed stop stays so until the next start.
        """
        if what in CALLS:
            self.had_faults = True
            self.devices[device].broken.add(what)
        elif what in WRITES:
            self.may_have_damaged = True
            getattr(self.devices[device].media, what).count = 1
        else:
            self.devices[device].broken.clear()

    @rule(
        numbers=SOME,
        inside=st.integers(0, EXTENT_BYTES - 8192),
        bit=st.integers(0, 7),
        is_read=st.booleans(),
    )
    @told
    def corrupt(self, numbers: list[int], inside: int, bit: int, is_read: bool) -> None:
        """Flips a bit of each chunk, for good or until its extent is written again."""
        self.model.settle_all()
        records = self.served.records()
        for number in set(numbers) & set(records):
            extent = records[number].extent
            self.devices[extent.device_index].media.flipped.flip(extent.offset + inside, bit)
        if is_read:
            self.served.forget_dram(numbers)
            self.served.read(numbers)

    @precondition(lambda self: not self.pinned)
    @rule()
    @told
    def come_to_rest(self) -> None:
        """With nothing under way nothing is held; the offline check names what is damaged."""
        self.model.settle_all()
        self.drop_tails()
        quiesce(self.served)
        self.served.assert_released()
        if any(device.broken or device.has_failed_stop for device in self.devices):
            return
        places = " ".join(problem.where for problem in self.served.check().problems)
        named = {n for n in self.served.records() if chunk_id(n).key.hex() in places}
        assert named == self.damaged(), f"the check names {named}"

    @invariant()
    @watched
    def deleted_chunks_are_gone(self) -> None:
        for number in self.served.records():
            assert self.model.may_be.get(number), f"chunk {number} is stored and should not be"

    @invariant()
    @watched
    def only_what_may_be_lost_is_lost(self) -> None:
        self.note_losses()

    # What the rules are made of.

    def drop_tails(self) -> None:
        """Gives back what sequences have in memory; here there are none."""

    def crash(self, chance: random.Random) -> None:
        """Loses power: of what was not flushed some pages survive.

        A chunk can be evicted in the moment of the crash. Those of a sequence can be evicted before
        it says that they are durable: it says so in their order, and their commits come in any.
        """
        with ExitStack() as still:
            for device in self.devices:
                still.enter_context(device.still)
            self.forgive_damage()
            self.note_losses()
            self.model.crashed()
            for device in self.devices:
                device.cache.lose_power(lambda: chance.random() < 0.5)
            self.lab.crash(self.served, [device.media.image() for device in self.devices])
            # Only now: what was flushed in time got into the index until it was saved.
            self.forgive_damage()
            unmissed_count = self.loss_count() - self.gone_count
        for device in self.devices:
            device.gate.set()
        self.session.close()
        self.start(Start.WALK)
        gone = set(self.model.durable) - set(self.served.records())
        assert len(gone) <= unmissed_count, f"chunks {gone} are lost"
        for number in gone:
            self.model.may_be_lost(number)

    def stop_and_start(self) -> None:
        """A clean stop: everything that was staged is settled.

        A chunk whose write ended badly may be flushed and not in the index yet: it would get
        there after the damage is noted.
        """
        if self.may_have_damaged:
            self.model.settle_all()
        self.forgive_damage()
        self.note_losses()
        self.served.stops_cleanly = True
        self.session.close()
        self.model.settle_all()
        for device in self.devices:
            device.cache.lose_power(lambda: True)
        self.lab.replace_media([device.media.image() for device in self.devices])
        self.start(Start.SERVICE)

    def stage(self, numbers: list[int], *, timeout_s: float = PATIENCE_S) -> None:
        versions = self.model.versions_for(numbers)
        self.served.versions = versions
        # In this order everywhere: damage that was met may go into quarantine at any moment.
        damaged = self.damaged()
        self.note_losses()
        there = set(self.model.durable) - damaged
        by_device = [self.on_devices({device}) for device in range(DEVICES)]
        tickets = self.served.put(numbers, timeout_s=timeout_s)
        # A device can fail in between, by what was staged before.
        there -= set().union(*(by_device[device] for device in self.failed()))
        for number, ticket in zip(numbers, tickets, strict=True):
            is_news = ticket.outcome is PutOutcome.STORED
            assert not (is_news and number in there), f"chunk {number} was there and is not"
            self.model.was_put(number, versions[number], ticket)

    def compare(self, numbers: list[int], **options: object) -> None:
        """Every byte is right, and what must be there is."""
        excused = self.excused(numbers)
        states = self.served.read(numbers, **options)  # type: ignore[arg-type]
        # A device can fail meanwhile, by what was staged before.
        excused |= self.excused(numbers)
        self.note_losses()
        for slot, number in enumerate(numbers):
            if number in self.model.durable and number not in excused:
                assert (states[slot] == RESIDENT).all(), f"chunk {number} is not there"

    def failed(self) -> set[int]:
        """Devices that the store has given up."""
        return set(self.served.store._store.failures.devices)

    def on_devices(self, devices: set[int]) -> set[int]:
        """Chunks in service on some devices."""
        records = self.served.records()
        return {n for n, record in records.items() if record.extent.device_index in devices}

    def damaged(self) -> set[int]:
        """Chunks in service whose extents do not read as they should."""
        return {
            number
            for number, record in self.served.records().items()
            if self.damaged_for_good.get(number) == record
            or self.devices[record.extent.device_index].media.is_damaged(
                record.extent.offset, ChunkGeometry.of(LAYOUT, record.token_count).extent_bytes
            )
        }

    def excused(self, numbers: list[int]) -> set[int]:
        """Those of the chunks that a read may miss now."""
        unreadable = {index for index, device in enumerate(self.devices) if "read" in device.broken}
        return (self.damaged() | self.on_devices(self.failed() | unreadable)) & set(numbers)

    def forgive_damage(self) -> None:
        """What is damaged now is what the next start finds on media."""
        records = self.served.records()
        damaged = self.damaged()
        self.damaged_for_good = {n: records[n] for n in damaged if n in records}
        for number in damaged:
            self.model.may_be_lost(number)

    def loss_count(self) -> int:
        """Chunks that were evicted or taken out of service since the start."""
        return self.served.counter("evicted_chunks") + self.served.counter("quarantined_chunks")

    def note_losses(self) -> None:
        """Chunks leave the index by eviction and quarantine, and are counted before.

        What is pinned is not evicted.
        """
        self.model.settle_done()
        records = self.served.records()
        gone = {number for number in self.model.durable if number not in records}
        self.gone_count += len(gone)
        assert self.gone_count <= self.loss_count(), f"chunks {gone} are lost"
        held = {chunk for pins in self.pinned for chunk in pins}
        held -= {chunk for chunk, _ in self.served.index.walks.quarantined()}
        assert not {chunk_id(number) for number in gone} & held, f"of {gone} some are pinned"
        for number in gone:
            self.model.may_be_lost(number)
