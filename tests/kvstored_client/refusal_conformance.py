"""What every store refuses: the same tests for a real daemon and for one in memory."""

from collections.abc import Callable

import pytest

from kvstored_client import (
    Client,
    LayerState,
    LimitExceededError,
    NewChunk,
    Placement,
    RequestInvalidError,
    StateKind,
    StateLayout,
)
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX, LEASE_MS_MAX
from kvstored_contract.reasons import Reason
from tests.kvstored_client.chunk_calls import ARENA_BYTES, ENCODED, chunks_of, region_of
from tests.support.rows import MIXED


class RefusalConformance:
    """Calls that name something impossible end with a typed error and change nothing."""

    def test_encoded_slices_are_not_cut(self, client: Client) -> None:
        placement = Placement(regions=(), base=0, layer_stride=1 << 15, block_offsets=(0, 4096))
        chunk = NewChunk(key=bytes(32), token_count=16, slice_bytes=(5000, 200, 0))
        calls: list[Callable[[], object]] = [
            lambda: client.put(ENCODED, [chunk], placement),
            lambda: client.read(ENCODED, [bytes(32)], placement),
        ]
        for call in calls:
            with pytest.raises(RequestInvalidError) as caught:
                call()
            assert caught.value.reason is Reason.ARENA_RANGE

    def test_every_chunk_of_a_put_can_be_cut(self, client: Client) -> None:
        """Chunks of 4 and 16 tokens lie in eight blocks each; one of 9 among them does not."""
        layout = StateLayout(
            model="h", dtype="f", layers=(LayerState(StateKind.HIDDEN, 129 * 2),), chunk_tokens=16
        )
        keys = client.prefix_keys(layout, range(48))
        placement = Placement(
            regions=(), base=0, layer_stride=0, block_offsets=tuple(range(0, 4096 * 24, 4096))
        )
        for token_counts, is_taken in (((4, 9, 16), False), ((4, 8, 16), True)):
            chunks = [
                NewChunk(key=key, token_count=count)
                for key, count in zip(keys, token_counts, strict=True)
            ]
            if is_taken:
                assert client.put(layout, chunks, placement).stored_count == 3
                continue
            with pytest.raises(RequestInvalidError, match="cannot be cut into 8 equal fragments"):
                client.put(layout, chunks, placement)

    @pytest.mark.parametrize("lengths", [(), (5000, 0, 0), (1 << 15, 1, 0), (1, 1, 1), (1, 1)])
    def test_lengths_that_the_layout_does_not_allow(
        self, client: Client, lengths: tuple[int, ...]
    ) -> None:
        chunk = NewChunk(key=bytes(32), token_count=16, slice_bytes=lengths)
        with pytest.raises(RequestInvalidError, match="chunk 0 cannot be stored"):
            client.put(ENCODED, [chunk], Placement.contiguous(region_of(client), ENCODED))

    @pytest.mark.parametrize(
        "chunk",
        [
            NewChunk(key=bytes(32), token_count=17),
            NewChunk(key=bytes(32), token_count=16, slice_bytes=(1,) * 6),
        ],
    )
    def test_chunks_that_cannot_be(self, client: Client, chunk: NewChunk) -> None:
        with pytest.raises(RequestInvalidError) as caught:
            client.put(MIXED, [chunk], Placement.contiguous(region_of(client), MIXED))
        assert caught.value.reason is Reason.FIELD_INVALID

    @pytest.mark.parametrize(
        "placement",
        [
            Placement(regions=(), base=ARENA_BYTES, layer_stride=4096),
            Placement(regions=(), base=0, layer_stride=ARENA_BYTES),
            Placement(regions=(), base=0, layer_stride=4096, block_offsets=(0, 4096, 8192)),
            Placement(regions=(), base=0, layer_stride=0, block_offsets=tuple(range(14))),
        ],
        ids=["base", "stride", "uneven blocks", "odd fragments"],
    )
    def test_placements_that_do_not_fit(self, client: Client, placement: Placement) -> None:
        calls: list[Callable[[], object]] = [
            lambda: client.put(MIXED, chunks_of([bytes(32), b"x" * 32]), placement),
            lambda: client.read(MIXED, [bytes(32), b"x" * 32], placement),
        ]
        for call in calls:
            with pytest.raises(RequestInvalidError) as caught:
                call()
            assert caught.value.reason is Reason.ARENA_RANGE
        assert client.counters["connects"] == 1

    def test_numbers_out_of_bounds(self, client: Client) -> None:
        placement = Placement.contiguous(region_of(client), MIXED)
        keys = [bytes(32)]
        calls: list[Callable[[], object]] = [
            lambda: client.match(MIXED, keys, lease_ms=LEASE_MS_MAX + 1),
            lambda: client.pin(MIXED, keys, lease_ms=0),
            lambda: client.read(MIXED, keys, placement, timeout_ms=0),
            lambda: client.put(MIXED, chunks_of(keys), placement, timeout_ms=600_001),
            lambda: client.delete([b"short"]),
        ]
        for call in calls:
            with pytest.raises(RequestInvalidError):
                call()
        with pytest.raises(LimitExceededError):
            client.match(MIXED, keys * (CHUNKS_PER_CALL_MAX + 1))
