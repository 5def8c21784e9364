"""The store of the state machine with sequences that grow, beside everything else it does."""

import random
import time
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry
from kvstored.store.sequences.rules import SequenceConflictError
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored_contract.reasons import Reason
from tests.faults.media.growing import CHUNK_TOKENS, Grower, GrownChunks
from tests.faults.media.lab import Start
from tests.faults.media.machine import DEVICE, DEVICES, DICE, NUMBERS_COUNT, StoreMachine, told
from tests.faults.media.served import LAYOUT, quiesce
from tests.support.rows import TOKEN_IDS
from tests.support.sequence_model import SequenceModel
from tests.support.waiting import wait_until

SEQUENCES_MAX = 4
MEANWHILE = ("nothing", "damage", "damage", "read", "flush")
STEP_ITEMS_MAX = 2
STEP_TOKENS = (1, 3, 15, 16, 40)
"""Two items have room in the half of DRAM's 28 frames that may be open, beside two more tails."""
STEPS_MAX = 4
READ_MAX = 40
OTHER_DEVICE_S = 0.01
"""Enough for a chunk to become durable."""
LOST = {Reason.NOT_STORED, Reason.CHECKSUM}
FAULTS = {Reason.DEVICE_FAILED, Reason.STORE_FULL, Reason.DRAM_FULL, Reason.DEADLINE}
"""What an append or a flush may meet when something is wrong."""


class GrowingMachine(StoreMachine):
    """Named sequences that are appended to, flushed, cut and forked through all faults.

    Their chunks are evicted, damaged and lost as those of puts are, and must be there as those
    are: what a sequence says to be durable goes into the model of the store.
    """

    def __init__(self) -> None:
        self.chunks = GrownChunks()
        self.sequences: dict[str, SequenceModel] = {}
        self.said: dict[str, set[int]] = {}
        """Chunks of each sequence that it said to be durable, once for each time."""
        self.made = 0
        self.session_id = 0
        self.grower: Grower
        super().__init__()

    def start(self, how: Start) -> None:
        """Every sequence is there, with what was durable of it and nothing else."""
        super().start(how)
        self.served.grown = self.chunks.slices
        self.served.store.layouts.register(LAYOUT)
        self.begin_session()
        for name, model in self.sequences.items():
            model.lose(self.grower.state(name).length_tokens)
            self.hear(name)
            assert model.safe == len(model.tokens)

    def begin_session(self) -> None:
        self.session_id += 1
        self.grower = Grower(self.served, self.chunks, self.session_id)

    @initialize(dice=DICE)
    @told
    def begin_sequences(self, dice: int) -> None:
        chance = random.Random(dice)
        for _ in range(2):
            self.make()
            self.step(chance, waits=True)

    @precondition(lambda self: len(self.sequences) < SEQUENCES_MAX)
    @rule()
    @told
    def create(self) -> None:
        self.make()

    @precondition(lambda self: self.sequences)
    @rule(dice=DICE, waits=st.booleans())
    @told
    def append(self, dice: int, waits: bool) -> None:
        chance = random.Random(dice)
        for _ in range(chance.randint(1, STEPS_MAX)):
            self.step(chance, waits=waits)

    @precondition(lambda self: self.sequences)
    @rule(dice=DICE, device=DEVICE, crashes=st.booleans())
    @told
    def append_while_a_device_waits(self, dice: int, device: int, crashes: bool) -> None:
        """Chunks become durable in another order than that of the sequence."""
        chance = random.Random(dice)
        self.devices[device].gate.clear()
        self.step(chance, waits=False)
        time.sleep(OTHER_DEVICE_S)
        for name in self.sequences:
            self.hear(name)
        self.note_losses()
        if crashes:
            self.crash(chance)
        self.devices[device].gate.set()

    @precondition(lambda self: self.sequences)
    @rule(dice=DICE)
    @told
    def append_and_flush(self, dice: int) -> None:
        """The usual end of a turn."""
        chance = random.Random(dice)
        self.step(chance, waits=False)
        self.flush_one(chance, waits=False)

    @precondition(lambda self: self.sequences)
    @rule(dice=DICE, waits=st.booleans())
    @told
    def flush(self, dice: int, waits: bool) -> None:
        self.flush_one(random.Random(dice), waits=waits)

    @precondition(lambda self: self.sequences)
    @rule(dice=DICE, is_front=st.booleans())
    @told
    def cut(self, dice: int, is_front: bool) -> None:
        """Takes chunks from the front, or tokens from the back."""
        chance = random.Random(dice)
        name = chance.choice(sorted(self.sequences))
        self.align(name, waits=self.had_faults)
        model, sequences = self.sequences[name], self.served.store.sequences
        if is_front:
            chunks = chance.randint(0, model.complete)
            sequences.truncate_front(self.grower.caller, name, chunks)
            model.cut_front(chunks)
            return
        drop = min(len(model.tokens), chance.choice([1, 3, 16, 17, 40]))
        left = len(model.tokens) - drop
        source = self.chunks.numbers(model, len(model.tokens))[left // CHUNK_TOKENS :][:1]
        try:
            state = sequences.truncate_tokens(self.grower.caller, name, drop)
        except SequenceStorageError as error:
            self.check_loss(source, error.reason)
        else:
            assert state.length_tokens == left
            if drop:
                model.cut(left)

    @precondition(lambda self: 0 < len(self.sequences) < SEQUENCES_MAX)
    @rule(dice=DICE)
    @told
    def fork(self, dice: int) -> None:
        chance = random.Random(dice)
        name, new_name = chance.choice(sorted(self.sequences)), self.new_name()
        self.align(name, waits=self.had_faults)
        model = self.sequences[name]
        keep_chunks = chance.randint(0, model.complete)
        try:
            state = self.served.store.sequences.fork(
                self.grower.caller, name, new_name, keep_chunks
            )
        except SequenceStorageError as error:
            self.check_refusal(error, is_allowed=self.had_faults)
            return
        self.hear(name)
        self.sequences[new_name] = model.fork(keep_chunks)
        self.said[new_name] = set(self.said[name])
        assert state.is_stopped or state.length_tokens == len(self.sequences[new_name].tokens)
        self.sequences[new_name].is_now(state.length_tokens)
        self.hear(new_name)

    @precondition(lambda self: self.sequences)
    @rule(dice=DICE)
    @told
    def delete_sequence(self, dice: int) -> None:
        name = random.Random(dice).choice(sorted(self.sequences))
        self.served.store.sequences.delete(self.grower.caller, name)
        del self.sequences[name], self.said[name]

    @precondition(lambda self: self.sequences)
    @rule(dice=DICE)
    @told
    def read_sequence(self, dice: int) -> None:
        """What is durable of a sequence is read back from the devices, byte by byte."""
        self.read_back(random.Random(dice).choice(sorted(self.sequences)))

    @rule()
    @told
    def end_session(self) -> None:
        """What is not flushed is gone, and so is every open frame."""
        self.drop_tails()

    @rule(dice=DICE, is_read=st.booleans())
    @told
    def corrupt_grown(self, dice: int, is_read: bool) -> None:
        """Flips a bit of some chunks of sequences, short ones too: of their header or a slice."""
        chance = random.Random(dice)
        self.model.settle_all()
        records = self.served.records()
        grown = sorted(number for number in records if number in self.chunks.slices)
        hit = chance.sample(grown, min(len(grown), 2))
        for number in hit:
            self.flip(records[number], chance)
        if hit and is_read:
            self.served.forget_dram(hit)
            self.served.read(hit)

    @precondition(lambda self: self.sequences)
    @rule(dice=DICE, meanwhile=st.sampled_from(MEANWHILE))
    @told
    def go_on_later(self, dice: int, meanwhile: str) -> None:
        """Another session loads a tail from its device, if that gives it, and whole."""
        chance = random.Random(dice)
        name = chance.choice(sorted(self.sequences))
        self.step(chance, waits=False, names=[name])
        self.flush_one(chance, waits=False, name=name)
        self.drop_tails()
        model = self.sequences[name]
        for number in self.chunks.numbers(model, len(model.tokens))[-1:]:
            self.model.settle_all()
            self.served.forget_dram([number])
            record = self.served.records().get(number)
            if record is not None and meanwhile == "damage":
                self.flip(record, chance)
            elif record is not None and meanwhile != "nothing":
                self.break_device(record.extent.device_index, meanwhile)
        self.step(chance, waits=False, names=[name])
        self.flush_one(chance, waits=False, name=name)
        self.read_back(name)

    # What the rules are made of.

    def read_back(self, name: str) -> None:
        self.align(name, waits=True)
        model = self.sequences[name]
        numbers = self.chunks.numbers(model, model.safe)[-READ_MAX:]
        if numbers:
            self.model.settle_all()
            self.served.forget_dram(numbers)
            self.compare(numbers)

    def flip(self, record: ChunkRecord, chance: random.Random) -> None:
        """Flips a bit of a chunk's header or of a slice, not of what lies between these."""
        geometry = ChunkGeometry.of(LAYOUT, record.token_count)
        layer = chance.randrange(-1, LAYOUT.layer_count)
        start, size = 0, HEADER_BYTES
        if layer >= 0:
            start, size = geometry.slice_offsets[layer], geometry.slice_bytes[layer]
        place = record.extent.offset + start + chance.randrange(size)
        self.devices[record.extent.device_index].media.flipped.flip(place, chance.randrange(8))

    def break_device(self, device: int, what: str) -> None:
        """Calls of a kind fail; a flush that does is brought about, so that it fails stop."""
        self.had_faults = True
        self.devices[device].broken.add(what)
        if what == "flush":
            free = set(range(NUMBERS_COUNT)) - set(self.served.records())
            # Chunk n is put on device n, if that has room.
            self.stage(sorted(number for number in free if number % DEVICES == device)[:1])
            self.model.settle_all()

    def make(self) -> None:
        name = self.new_name()
        self.sequences[name] = self.grower.create(name)
        self.said[name] = set()

    def step(
        self, chance: random.Random, *, waits: bool, names: Sequence[str] | None = None
    ) -> None:
        """Appends to some sequences, by default to one or two of all."""
        must_succeed = waits and self.is_calm()
        some = min(len(self.sequences), chance.randint(1, STEP_ITEMS_MAX))
        added = []
        for name in names or chance.sample(sorted(self.sequences), some):
            self.align(name, waits=waits)
            tokens = [chance.randrange(TOKEN_IDS) for _ in range(chance.choice(STEP_TOKENS))]
            added.append((name, self.sequences[name], tokens))
        lengths = [len(model.tokens) for _, model, _ in added]
        outcomes = self.grower.append(added)
        for (name, model, _), before, outcome in zip(added, lengths, outcomes, strict=True):
            for number in self.chunks.numbers(model, model.complete * CHUNK_TOKENS):
                self.model.may_be.setdefault(number, {0})
            if outcome.reason in LOST:
                self.lose_tail(name, before)
            elif outcome.reason is not Reason.UNSPECIFIED:
                assert not must_succeed, (name, outcome)
                assert outcome.reason in {*FAULTS, Reason.SEQUENCE_CONFLICT}, (name, outcome)
            if outcome.reason is Reason.UNSPECIFIED:
                assert outcome.length_tokens == len(model.tokens), (name, outcome)
            else:
                del model.tokens[max(before, outcome.length_tokens) :]
                model.is_now(outcome.length_tokens)

    def flush_one(self, chance: random.Random, *, waits: bool, name: str = "") -> None:
        """What is answered is in the records and on the devices."""
        name = name or chance.choice(sorted(self.sequences))
        must_succeed = waits and self.is_calm()
        self.align(name, waits=waits)
        model = self.sequences[name]
        for number in self.chunks.numbers(model, len(model.tokens)):
            self.model.may_be.setdefault(number, {0})
        try:
            self.grower.flush(name, model)
        except (SequenceConflictError, SequenceStorageError) as error:
            self.check_refusal(error, is_allowed=not must_succeed)
        self.align(name, waits=False)

    def crash(self, chance: random.Random) -> None:
        for name in self.sequences:
            self.hear(name)
        super().crash(chance)

    def stop_and_start(self) -> None:
        for name in self.sequences:
            self.align(name, waits=True)
        super().stop_and_start()

    def drop_tails(self) -> None:
        """The session ends, and another one begins."""
        for name in self.sequences:
            self.align(name, waits=False)
        self.served.store.open_sequences.end_session(self.session_id)
        assert self.served.store._dram.open_frames.byte_count == 0
        self.begin_session()
        for name, model in self.sequences.items():
            state = self.grower.settled(name)
            model.lose(state.length_tokens)
            self.hear(name)

    @staticmethod
    def check_refusal(
        error: SequenceConflictError | SequenceStorageError, *, is_allowed: bool
    ) -> None:
        """Something has gone wrong; for a conflict, after the last look at the sequence."""
        assert is_allowed, error
        assert isinstance(error, SequenceConflictError) or error.reason in FAULTS, error

    def new_name(self) -> str:
        self.made += 1
        return f"sequence {self.made}"

    def is_calm(self) -> bool:
        """Whether nothing can be refused; waits until nothing is under way."""
        if self.had_faults or self.pinned or self.served.index.walks.quarantined():
            return False
        self.model.settle_all()
        for name in self.sequences:
            self.align(name, waits=True)
        quiesce(self.served)
        return not self.served.index.walks.quarantined()

    def align(self, name: str, *, waits: bool) -> None:
        """A chunk that could not be written has ended the sequence before it."""
        state = self.grower.settled(name) if waits else self.grower.state(name)
        model = self.sequences[name]
        if state.length_tokens != len(model.tokens):
            assert state.is_stopped, f"{name} is shorter than it should be: {state}"
            assert self.had_faults, f"{name} has ended: {state}"
            model.lose(state.length_tokens)
        self.hear(name)

    def hear(self, name: str) -> None:
        """Takes down what a sequence says to be durable."""
        model, said = self.sequences[name], self.said[name]
        state = self.grower.state(name)
        model.survives(state.durable_tokens)
        self.grower.check_names(name, model)
        for number in self.chunks.numbers(model, state.durable_tokens):
            self.model.may_be.setdefault(number, {0})
            if number not in said:
                said.add(number)
                self.model.durable[number] = 0

    def lose_tail(self, name: str, before: int) -> None:
        """A flushed tail is not there any more: the sequence ends with its last chunk."""
        model = self.sequences[name]
        complete = before // CHUNK_TOKENS * CHUNK_TOKENS
        tail = self.chunks.number(model.dropped + model.tokens[:before])
        model.safe = min(model.safe, complete)
        self.check_loss([tail], Reason.NOT_STORED)

    def check_loss(self, numbers: list[int], reason: Reason) -> None:
        """What could not be loaded is gone or damaged, or its device does not give it now."""
        assert reason in {*LOST, *FAULTS}, reason.name
        wait_until(lambda: not self.served.store._store._deleting)
        self.note_losses()
        must_be = set(numbers) & set(self.model.durable)
        excused = self.damaged() if reason in LOST else self.excused(numbers)
        assert reason is Reason.DRAM_FULL or must_be <= excused, f"{must_be}: {reason.name}"
