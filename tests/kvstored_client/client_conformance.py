"""What every client of every store does: the same tests for a real daemon and for one in memory."""

from collections.abc import Callable

import numpy as np
import pytest

from kvstored_client import (
    Ack,
    ArenaFullError,
    ChangeKind,
    Client,
    DaemonAbsentError,
    LimitExceededError,
    NewChunk,
    Order,
    Placement,
    PutOutcome,
    PutReport,
    RegionStaleError,
    RequestInvalidError,
    SliceState,
    StateLayout,
)
from kvstored_client.errors import StoreError
from kvstored_contract.limits import NOTE_BYTES_MAX, NOTES_BYTES_PER_CALL_MAX
from kvstored_contract.reasons import Reason
from tests.kvstored_client.chunk_calls import (
    CHUNKS,
    ENCODED,
    TOKENS,
    Connect,
    chunks_of,
    filled,
    region_of,
    slice_at,
    store,
)
from tests.kvstored_client.hint_conformance import HintConformance
from tests.kvstored_client.lease_conformance import LeaseConformance
from tests.kvstored_client.long_history_conformance import LongHistoryConformance
from tests.kvstored_client.ownership_conformance import OwnershipConformance
from tests.kvstored_client.refusal_conformance import RefusalConformance
from tests.kvstored_client.sequence_conformance import SequenceConformance
from tests.support.rows import MIXED


class ClientConformance(
    SequenceConformance,
    HintConformance,
    OwnershipConformance,
    LeaseConformance,
    LongHistoryConformance,
    RefusalConformance,
):
    """``connect(**options)`` makes clients of one store, with a salt of the test's own."""

    def test_keys_follow_from_namespace_and_salt(self, connect: Connect) -> None:
        ours, same, other = connect(), connect(), connect(salt="another")
        keys = ours.prefix_keys(MIXED, TOKENS)
        assert len(keys) == CHUNKS
        assert keys == same.prefix_keys(MIXED, TOKENS)
        rest = TOKENS[MIXED.chunk_tokens :]
        assert keys[1:] == same.prefix_keys(MIXED, rest, parent=keys[0])
        assert not set(keys) & set(other.prefix_keys(MIXED, TOKENS))
        assert ours.namespace.startswith("default/")

    def test_all_sessions_see_one_epoch(self, connect: Connect) -> None:
        first, second = connect(), connect()
        assert first.epoch == 0
        assert first.available()
        assert second.available()
        assert first.epoch == second.epoch > 0

    def test_every_region_lies_in_the_memory_of_the_arena(self, connect: Connect) -> None:
        """A device has to hear of all of it, once."""
        client = connect()
        assert client.arena_memory is None
        assert client.available()
        region, memory = client.allocate(4096), client.arena_memory
        assert region is not None
        assert memory is not None
        region.view[:] = b"k" * 4096
        assert memory[region.offset : region.offset + 4096] == region.view
        assert client.region_bytes_max <= len(memory)

    @pytest.mark.parametrize("order", Order)
    @pytest.mark.parametrize("ack", Ack)
    def test_what_was_put_is_read_again(self, client: Client, order: Order, ack: Ack) -> None:
        keys, source = store(client, ack=ack)
        target = filled(client, 1)
        with client.read(MIXED, keys, Placement.contiguous(target, MIXED), order=order) as read:
            assert read.wait_for(CHUNKS - 1)
            assert read.wait_layer(MIXED.layer_count - 1)
            report = read.wait()
            assert read.finished
        assert report.resident == (True,) * CHUNKS
        assert report.resident_prefix == CHUNKS
        assert report.device_bytes + report.dram_bytes >= CHUNKS * MIXED.chunk_bytes()
        for chunk, layer in np.ndindex(CHUNKS, MIXED.layer_count):
            assert read.state(chunk, layer) is SliceState.RESIDENT
            assert read.slice_bytes(chunk, layer) is None
            assert slice_at(target, chunk, layer) == slice_at(source, chunk, layer)

    def test_changes_are_told_to_every_client_of_the_namespace(
        self, client: Client, connect: Connect
    ) -> None:
        other = connect()
        begin = other.changes()
        assert begin is not None
        assert begin.is_lost
        keys = client.prefix_keys(MIXED, TOKENS)
        source = filled(client, 0)
        chunks = [
            NewChunk(key=key, token_count=MIXED.chunk_tokens, note=b"%d" % number)
            for number, key in enumerate(keys)
        ]
        for _ in range(2):
            client.put(MIXED, chunks, Placement.contiguous(source, MIXED))
        client.delete([keys[2]])
        told = other.changes(epoch=begin.epoch, after_sequence=begin.last_sequence, keys=keys[1:3])
        assert told is not None
        assert not told.is_lost
        assert told.epoch == other.epoch
        assert told.are_stored == (True, False)
        last = {change.key: change for change in told.changes}
        assert {key: last[key].note for key in keys if key != keys[2]} == {
            key: b"%d" % number for number, key in enumerate(keys) if number != 2
        }
        assert {key for key in keys if last[key].kind is ChangeKind.STORED} == {*keys} - {keys[2]}
        again = other.changes(epoch=told.epoch, after_sequence=told.last_sequence)
        assert again is not None
        assert not again.changes
        assert not again.has_more

    @pytest.mark.parametrize(("epochs", "changes"), [(1, 0), (0, 1)])
    def test_place_that_never_was_is_lost(self, client: Client, epochs: int, changes: int) -> None:
        here = client.changes()
        assert here is not None
        told = client.changes(
            epoch=here.epoch + epochs, after_sequence=here.last_sequence + changes
        )
        assert told is not None
        assert told.is_lost

    def test_notes_that_are_too_long_together_are_refused(self, client: Client) -> None:
        source = filled(client, 0)
        chunks = [
            NewChunk(key=number.to_bytes(32, "big"), token_count=16, note=bytes(NOTE_BYTES_MAX))
            for number in range(NOTES_BYTES_PER_CALL_MAX // NOTE_BYTES_MAX + 1)
        ]
        same_place = Placement(
            regions=(source,), base=source.offset, layer_stride=MIXED.layer_stride
        )
        with pytest.raises(LimitExceededError):
            client.put(MIXED, chunks, same_place)
        with pytest.raises(RequestInvalidError):
            client.changes(keys=[b"short"])

    def test_another_client_reads_it_too(self, client: Client, connect: Connect) -> None:
        keys, source = store(client)
        other = connect()
        target = filled(other, 1)
        with other.read(MIXED, keys, Placement.contiguous(target, MIXED)) as read:
            assert read.wait().resident_prefix == CHUNKS
        assert slice_at(target, 3, 4) == slice_at(source, 3, 4)

    def test_the_source_is_the_engines_again(self, client: Client) -> None:
        keys, source = store(client)
        kept = slice_at(source, 0, 0)
        source.view[:] = bytes(source.byte_count)
        target = filled(client, 1)
        with client.read(MIXED, keys, Placement.contiguous(target, MIXED)) as read:
            assert read.wait().resident_prefix == CHUNKS
        assert slice_at(target, 0, 0) == kept

    def test_some_layers(self, client: Client) -> None:
        keys, source = store(client)
        target = filled(client, 1)
        placement = Placement.contiguous(target, MIXED, 3)
        with client.read(MIXED, keys, placement, first_layer=3, layer_count=3) as read:
            assert read.wait().resident_prefix == CHUNKS
        size = MIXED.slice_bytes(4)
        ours = slice_at(target, 2, 1, layer_count=3, byte_count=size)
        assert ours == slice_at(source, 2, 4)

    @pytest.mark.parametrize(("first_layer", "layer_count"), [(6, 1), (0, 7), (-1, 1), (0, 0)])
    def test_layers_that_there_are_not(
        self, client: Client, first_layer: int, layer_count: int
    ) -> None:
        placement = Placement.contiguous(region_of(client), MIXED)
        with pytest.raises(RequestInvalidError):
            client.read(
                MIXED, [bytes(32)], placement, first_layer=first_layer, layer_count=layer_count
            )

    def test_what_is_stored_is_not_stored_again(self, client: Client) -> None:
        keys, source = store(client)
        other = filled(client, 1)
        fresh = bytes(31) + b"f"
        report = client.put(
            MIXED, chunks_of([keys[1], fresh, fresh]), Placement.contiguous(other, MIXED)
        )
        outcomes = [result.outcome for result in report.results]
        assert outcomes == [PutOutcome.EXISTED, PutOutcome.STORED, PutOutcome.EXISTED]
        assert (report.stored_count, report.existed_count, report.rejected_count) == (1, 2, 0)
        target = filled(client, 2)
        with client.read(MIXED, [keys[1]], Placement.contiguous(target, MIXED)) as read:
            assert read.wait().resident == (True,)
        assert slice_at(target, 0, 0) == slice_at(source, 1, 0)
        assert client.delete([fresh]) == 1

    def test_the_longest_stored_prefix(self, client: Client) -> None:
        keys, _ = store(client)
        unknown = bytes(31) + b"u"
        assert client.match(MIXED, keys).chunk_count == CHUNKS
        assert client.match(MIXED, [*keys[:2], unknown, *keys[2:]]).chunk_count == 2
        assert client.match(MIXED, [unknown, *keys]).chunk_count == 0
        assert client.match(MIXED, keys).lease is None

    def test_missing_chunks_are_missing(self, client: Client) -> None:
        keys, source = store(client)
        assert client.delete([keys[2], keys[2][::-1]]) == 1
        assert client.delete([keys[2]]) == 0
        assert client.match(MIXED, keys).chunk_count == 2
        target = filled(client, 1)
        with client.read(MIXED, keys, Placement.contiguous(target, MIXED)) as read:
            assert not read.wait_for(2)
            assert read.wait_for(3)
            assert not read.wait_layer(0)
            report = read.wait()
        assert report.resident == (True, True, False, True, True)
        assert report.resident_prefix == 2
        assert {read.state(2, layer) for layer in range(6)} == {SliceState.MISSING}
        assert slice_at(target, 4, 0) == slice_at(source, 4, 0)

    def test_a_chunk_of_another_layout_is_missing(self, client: Client) -> None:
        keys, _ = store(client)
        other = StateLayout(model="o", dtype="f", layers=MIXED.layers, chunk_tokens=16)
        target = region_of(client, other)
        with client.read(other, keys[:1], Placement.contiguous(target, other)) as read:
            assert read.wait().resident == (False,)

    def test_a_short_chunk(self, client: Client) -> None:
        source, target = filled(client, 0), filled(client, 1)
        key = client.prefix_keys(MIXED, TOKENS)[0][::-1]
        placement = Placement.contiguous(source, MIXED)
        assert client.put(MIXED, chunks_of([key], 5), placement).stored_count == 1
        untouched = slice_at(target, 0, 0)[MIXED.slice_bytes(0, 5) :]
        with client.read(MIXED, [key], Placement.contiguous(target, MIXED)) as read:
            assert read.wait().resident == (True,)
        size = MIXED.slice_bytes(0, 5)
        assert slice_at(target, 0, 0, byte_count=size) == slice_at(source, 0, 0, byte_count=size)
        assert slice_at(target, 0, 0)[size:] == untouched

    def test_slices_in_blocks_of_the_engine(self, client: Client) -> None:
        keys, source = store(client)
        blocks = region_of(client)
        # Two chunks of four blocks each, scattered.
        offsets = tuple(index * 4096 for index in (7, 0, 5, 2, 1, 6, 3, 4))
        placement = Placement(
            regions=(blocks,), base=blocks.offset, layer_stride=1 << 15, block_offsets=offsets
        )
        with client.read(MIXED, keys[:2], placement, layer_count=1) as read:
            assert read.wait().resident_prefix == 2
        for chunk in range(2):
            parts = offsets[chunk * 4 : chunk * 4 + 4]
            pieces = [bytes(blocks.view[part : part + 4096]) for part in parts]
            assert b"".join(pieces) == slice_at(source, chunk, 0)

    def test_encoded_slices_have_lengths_of_their_own(self, client: Client) -> None:
        source, target = filled(client, 0, ENCODED), filled(client, 1, ENCODED)
        key = client.prefix_keys(ENCODED, TOKENS)[0]
        chunk = NewChunk(key=key, token_count=16, slice_bytes=(5000, 1, 0))
        placement = Placement.contiguous(source, ENCODED)
        assert client.put(ENCODED, [chunk], placement).stored_count == 1
        with client.read(ENCODED, [key], Placement.contiguous(target, ENCODED)) as read:
            assert read.wait().resident == (True,)
            assert [read.slice_bytes(0, layer) for layer in range(3)] == [5000, 1, 0]
        for layer, size in enumerate((5000, 1)):
            ours, theirs = (
                slice_at(region, 0, layer, layout=ENCODED, byte_count=size)
                for region in (target, source)
            )
            assert ours == theirs

    def test_a_layout_is_taken(self, client: Client) -> None:
        assert client.register(MIXED) is True

    def test_a_read_stops_where_the_engine_computes(self, client: Client) -> None:
        keys, _ = store(client)
        read = client.read(MIXED, keys, Placement.contiguous(region_of(client), MIXED))
        read.advance(CHUNKS)
        read.cancel()
        report = read.wait()
        assert report.finished
        states = {read.state(chunk, 0) for chunk in range(CHUNKS)}
        assert states <= {SliceState.RESIDENT, SliceState.SKIPPED}
        read.close()
        read.close()
        assert read.report() == report

    def test_slices_outside_of_a_read(self, client: Client) -> None:
        keys, _ = store(client)
        placement = Placement.contiguous(region_of(client), MIXED)
        with client.read(MIXED, keys, placement) as read:
            calls: list[Callable[[], object]] = [
                lambda: read.is_resident(CHUNKS),
                lambda: read.wait_for(0, MIXED.layer_count),
                lambda: read.wait_layer(-1),
            ]
            for call in calls:
                with pytest.raises(IndexError):
                    call()

    def test_nothing_to_do(self, client: Client) -> None:
        placement = Placement(regions=(), base=0, layer_stride=0)
        assert client.put(MIXED, [], placement) == PutReport(())
        assert client.match(MIXED, []).chunk_count == 0
        assert client.pin(MIXED, [], lease_ms=1) is None
        assert client.delete([]) == 0
        with client.read(MIXED, [], placement) as read:
            assert read.wait().finished

    def test_a_full_arena(self, client: Client, connect: Connect) -> None:
        everything = client.allocate(client.region_bytes_max)
        assert everything is not None
        with pytest.raises(ArenaFullError, match="release regions"):
            client.allocate(1)
        everything.release()
        assert client.allocate(client.region_bytes_max) is not None
        lenient = connect(strict=False)
        assert lenient.allocate(lenient.region_bytes_max + 1) is None
        assert lenient.counters["allocate_failed_ArenaFull"] == 1

    def test_a_released_region_is_not_named(self, client: Client, connect: Connect) -> None:
        source = filled(client, 0)
        placement = Placement.contiguous(source, MIXED)
        source.release()
        key = bytes(31) + b"r"
        with pytest.raises(RegionStaleError):
            client.put(MIXED, chunks_of([key]), placement)
        with pytest.raises(RegionStaleError):
            connect().read(MIXED, [key], Placement.contiguous(filled(client, 0), MIXED))

    def test_a_failure_is_a_miss_unless_the_client_is_strict(self, connect: Connect) -> None:
        client = connect(strict=False)
        placement = Placement.contiguous(region_of(client), MIXED)
        report = client.put(MIXED, [NewChunk(key=bytes(32), token_count=17)], placement)
        assert report.results[0].outcome is PutOutcome.REJECTED
        assert report.results[0].reason is Reason.FIELD_INVALID
        with client.read(MIXED, [b"short"], placement) as read:
            assert read.wait().resident == (False,)
        assert client.match(MIXED, [b"short"]).chunk_count == 0
        assert client.delete([b"short"]) == 0
        assert client.counters["put_failed_RequestInvalid"] == 1
        assert client.epoch > 0

    def test_a_closed_client_misses_everything(self, client: Client) -> None:
        region = region_of(client)
        client.close()
        assert not region.is_current
        assert not client.available()
        assert client.epoch == 0
        with pytest.raises(DaemonAbsentError):
            client.match(MIXED, [bytes(32)])
        region.release()

    def test_admin(self, client: Client) -> None:
        keys, _ = store(client, ack=Ack.DURABLE)
        stats = client.admin.stats()
        assert stats.chunk_count >= CHUNKS
        assert stats.epoch == client.epoch
        assert stats.session_count >= 1
        details = client.admin.inspect(keys[1].hex())
        assert details.chunk.key == keys[1]
        assert details.chunk.layout_id == MIXED.layout_id
        assert details.chunk.token_count == MIXED.chunk_tokens
        assert details.parent_key == keys[0]
        assert [part.bytes for part in details.slices] == [
            MIXED.slice_bytes(layer) for layer in range(MIXED.layer_count)
        ]
        listed = client.admin.list_chunks(keys[2].hex()[:16], 1)
        assert [chunk.key for chunk in listed.chunks] == [keys[2]]
        assert client.admin.list_chunks("", 1).truncated
        with pytest.raises(RequestInvalidError):
            client.admin.inspect("zz")
        with pytest.raises(StoreError) as caught:
            client.admin.inspect(keys[0][::-1].hex())
        assert caught.value.reason is Reason.NOT_STORED
