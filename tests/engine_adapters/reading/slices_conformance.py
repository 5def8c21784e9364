"""What every implementation of ``Slices`` does, whatever becomes of the bytes."""

from collections.abc import Callable, Iterator

import pytest
import torch

from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.section import sections_of
from engine_adapters.reading.section_reads import SectionReads
from engine_adapters.reading.slice_format import SliceFormat
from engine_adapters.reading.slices import Slices
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Order, SliceState
from kvstored_client.testing import Delivery, MemoryClient
from tests.engine_adapters.runner.memory import check_released, make_store

CHUNK_TOKENS = 8
CHUNKS = 4
LONG_S = 60.0
MakeTokens = Callable[[int, int], list[int]]


class SlicesConformance:
    """Hidden states of the first layer and keys and values of all others: two sections."""

    codec: str
    """Of the layout that is read."""

    def make(self, reads: SectionReads, slice_format: SliceFormat) -> Slices:
        """The implementation."""
        raise NotImplementedError

    @pytest.fixture
    def prompt(self, make_tokens: MakeTokens) -> list[int]:
        return make_tokens(CHUNKS * CHUNK_TOKENS + 1, 1)

    @pytest.fixture
    def raw_format(self, model: Model) -> StateFormat:
        layers = model.config.layer_count
        schedule = LayerSchedule.of((Source.HIDDEN, 1), (Source.KV, layers - 1))
        return StateFormat.of_model(model, "slices", schedule=schedule, chunk_tokens=CHUNK_TOKENS)

    @pytest.fixture
    def state_format(self, raw_format: StateFormat) -> StateFormat:
        return raw_format.encoded(self.codec)

    @pytest.fixture
    def engine(self, model: Model) -> Engine:
        """What it computed is in its cache from slot 0 on."""
        return Engine(model, cache_tokens=128, requests_max=1)

    @pytest.fixture
    def client(
        self, model: Model, state_format: StateFormat, prompt: list[int]
    ) -> Iterator[MemoryClient]:
        """Of a store that has the prompt and brings what a test delivers."""
        with MemoryClient(make_store()) as client:
            saver = StateSaver(client, state_format)
            engine = Engine(model, cache_tokens=128, sink=saver, requests_max=1)
            engine.add_request(prompt, new_tokens_max=1)
            engine.run()
            saver.close()
            client.store.faults.delivery = Delivery.HELD
            yield client
            check_released(client.store)

    @pytest.fixture
    def reads(
        self, client: MemoryClient, state_format: StateFormat, prompt: list[int]
    ) -> Iterator[SectionReads]:
        region = client.allocate(state_format.span_bytes(CHUNKS))
        assert region is not None
        layout = state_format.layout
        reads = SectionReads(
            client,
            layout,
            region,
            pieces=pieces_of(
                client.prefix_keys(layout, prompt)[:CHUNKS], chunk_tokens=CHUNK_TOKENS
            ),
            sections=sections_of(layout),
            order=Order.LAYER_FIRST,
        )
        yield reads
        reads.close()

    @pytest.fixture
    def slices(self, reads: SectionReads, state_format: StateFormat) -> Iterator[Slices]:
        slices = self.make(reads, state_format)
        yield slices
        reads.cancel()
        slices.close()

    def start_all(self, reads: SectionReads) -> None:
        while not reads.are_all_started:
            reads.start(1000)

    def settle(self, slices: Slices, layer: int) -> list[SliceState]:
        """States of a layer once all of its slices have settled."""
        for chunk in range(CHUNKS):
            slices.wait(chunk, layer, timeout_s=LONG_S)
        return [slices.state(chunk, layer) for chunk in range(CHUNKS)]

    def test_nothing_has_come_before_it_was_asked_for(self, slices: Slices) -> None:
        slices.wait(0, 0, timeout_s=LONG_S)
        assert slices.state(0, 0) is SliceState.PENDING
        assert slices.state(0) is SliceState.PENDING
        assert slices.arrived_chunks(0) == 0

    def test_a_slice_comes_before_its_chunk(
        self, client: MemoryClient, reads: SectionReads, slices: Slices
    ) -> None:
        self.start_all(reads)
        client.store.reads[0].deliver()
        assert self.settle(slices, 0) == [SliceState.RESIDENT] * CHUNKS
        assert slices.arrived_chunks(0) == CHUNKS
        assert slices.arrived_chunks(1) == 0
        assert slices.state(0, 1) is SliceState.PENDING
        assert slices.state(0) is SliceState.PENDING
        client.store.reads[1].deliver()
        for chunk in range(CHUNKS):
            slices.wait(chunk, timeout_s=LONG_S)
            assert slices.state(chunk) is SliceState.RESIDENT

    def test_a_wait_ends_without_what_was_waited_for(
        self, reads: SectionReads, slices: Slices
    ) -> None:
        self.start_all(reads)
        slices.wait(0, 0, timeout_s=0.01)
        slices.wait(0, timeout_s=0.01)
        assert slices.state(0, 0) is SliceState.PENDING

    def test_states_are_those_that_were_computed(
        self,
        client: MemoryClient,
        reads: SectionReads,
        slices: Slices,
        engine: Engine,
        prompt: list[int],
    ) -> None:
        self.start_all(reads)
        for read in client.store.reads:
            read.deliver()
        engine.add_request(prompt, new_tokens_max=1)
        engine.run()
        self.settle(slices, 1)
        states = slices.view(1, range(1, 3))
        wanted = engine._cache.values[1, CHUNK_TOKENS : 3 * CHUNK_TOKENS]
        assert torch.equal(states[:, 1].reshape(wanted.shape), wanted)

    def test_a_chunk_of_which_a_slice_is_lost_is_lost(
        self,
        client: MemoryClient,
        state_format: StateFormat,
        prompt: list[int],
        reads: SectionReads,
        slices: Slices,
    ) -> None:
        key = client.prefix_keys(state_format.layout, prompt)[2]
        client.store.faults.lost_slices = {(key, 1)}
        self.start_all(reads)
        for read in client.store.reads:
            read.deliver()
        states = self.settle(slices, 1)
        assert states[:2] + states[3:] == [SliceState.RESIDENT] * (CHUNKS - 1)
        assert states[2] not in (SliceState.PENDING, SliceState.RESIDENT)
        assert slices.state(2) not in (SliceState.PENDING, SliceState.RESIDENT)
        assert slices.arrived_chunks(1) == 2
        assert self.settle(slices, 0) == [SliceState.RESIDENT] * CHUNKS

    def test_what_will_not_be_asked_for_is_lost(
        self, client: MemoryClient, reads: SectionReads, slices: Slices
    ) -> None:
        reads.start(1000)
        reads.give_up()
        client.store.reads[0].deliver()
        assert self.settle(slices, 0) == [SliceState.RESIDENT] * CHUNKS
        # A thread may still have to hear of it.
        slices.wait(0, timeout_s=0.01)
        assert slices.state(0) not in (SliceState.PENDING, SliceState.RESIDENT)

    def test_a_close_does_not_wait_for_what_was_cancelled(
        self, reads: SectionReads, state_format: StateFormat
    ) -> None:
        slices = self.make(reads, state_format)
        self.start_all(reads)
        reads.cancel()
        slices.close()
