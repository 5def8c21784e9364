"""Which chunks come back into DRAM, and when."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId
from kvstored.tiers.chunks import extent_load
from kvstored.tiers.chunks.frame import Claim
from kvstored_contract.board import SliceState
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.stores import (
    BASE,
    LAYOUT,
    MIB,
    NAMESPACE,
    StoreUnderTest,
    forget_dram,
    key,
    new_board,
    open_store,
    put_durable,
)
from tests.support.waiting import wait_until


def test_second_read_from_a_device_promotes(opened: StoreUnderTest) -> None:
    opened.fill(1)
    put_durable(opened, [0])
    forget_dram(opened, [0])
    for _ in range(2):
        assert opened.read([0], base=BASE, board=new_board(1)).wait()
    wait_until(lambda: opened.stats().counters.get("promoted_chunks") == 1)
    stream = opened.read([0], base=BASE, board=new_board(1))
    assert stream.wait()
    assert stream.task.dram_chunks == 1


@pytest.mark.parametrize(
    "kinds",
    [
        (StateKind.HIDDEN, StateKind.HIDDEN, StateKind.HIDDEN, StateKind.KV),
        (StateKind.NONE, StateKind.HIDDEN, StateKind.KV, StateKind.KV),
    ],
)
def test_reads_of_parts_of_the_layers_are_one_use_of_a_chunk(
    opened: StoreUnderTest, kinds: tuple[StateKind, ...]
) -> None:
    """Hidden states and keys and values of one restoration, or each pipeline stage its layers."""
    layout = StateLayout(
        model="mixed",
        dtype="float32",
        layers=tuple(LayerState(kind, 0 if kind is StateKind.NONE else 512) for kind in kinds),
        chunk_tokens=16,
    )
    stored = [layer for layer, kind in enumerate(kinds) if kind is not StateKind.NONE]
    opened.fill(1, layout=layout)
    durable = opened.put([0], layout=layout)[0].durable
    assert durable is not None
    assert durable.result() is Reason.UNSPECIFIED
    forget_dram(opened, [0])

    def restore() -> None:
        for layer in stored:
            board = new_board(1, 1)
            stream = opened.read(
                [0], base=BASE, board=board, layout=layout, first_layer=layer, layer_count=1
            )
            assert stream.wait()
            assert (stream.task.dram_chunks, stream.task.nvme_chunks) == (0, 1)

    def counted() -> float:
        """A stream counts after its end."""
        return opened.store._promoter._reads.count(ChunkId(NAMESPACE, key(0)))

    restore()
    wait_until(lambda: counted() == pytest.approx(1))
    assert opened.stats().counters.get("promoted_chunks", 0) == 0
    opened.read([0], base=BASE, board=new_board(1), layout=layout).wait()
    wait_until(lambda: opened.stats().counters.get("promoted_chunks") == 1)


def test_a_stage_that_reads_its_own_layers_only_brings_them_into_dram(
    opened: StoreUnderTest,
) -> None:
    """Bug: only reads with the first layer counted, so those of later pipeline stages never."""
    layout = replace(LAYOUT, layers=LAYOUT.layers[:1] * 5)
    opened.fill(1, layout=layout)
    durable = opened.put([0], layout=layout)[0].durable
    assert durable is not None
    assert durable.result() is Reason.UNSPECIFIED
    forget_dram(opened, [0])
    # Five fifths are less than 1 when they are added up.
    for _ in range(2 * 5):
        board = new_board(1, 1)
        opened.read([0], base=BASE, board=board, layout=layout, first_layer=1, layer_count=1).wait()
    wait_until(lambda: opened.stats().counters.get("promoted_chunks") == 1)


def test_histories_that_exceed_dram_do_not_chase_each_other(tmp_path: Path) -> None:
    """Reading more than fits, round after round, promotes only into free frames."""
    with open_store(tmp_path, dram_bytes=MIB) as opened:
        numbers = list(range(40))
        opened.fill(40)
        for start in range(0, 40, 10):
            put_durable(opened, numbers[start : start + 10])
        board = new_board(40)
        for _ in range(4):
            board.clear()
            assert opened.read(numbers, base=BASE, board=board).wait()
        # A chunk that is being promoted counts, but cannot be read yet.
        opened.store._promoter.close()
        stats = opened.stats()
        assert stats.dram_chunk_count * 2 > 40
        hits = opened.read(numbers, base=BASE, board=new_board(40)).task.dram_chunks
        assert hits == stats.dram_chunk_count
        assert opened.stats().counters.get("promoted_chunks", 0) < 40


def test_damage_seen_by_a_promotion_is_quarantined(opened: StoreUnderTest) -> None:
    opened.fill(1)
    put_durable(opened, [0])
    forget_dram(opened, [0])
    assert opened.read([0], base=BASE, board=new_board(1)).wait()
    status, _ = opened.store.inspection.list_chunks(key(0).hex(), 1)
    media = opened.devices[status[0].device_index].media
    position = status[0].offset + HEADER_BYTES + LAYOUT.slice_bytes(0) * 3
    # Later reads skip the damaged layer, so that only the promotion meets it.
    media[position] ^= 1
    for _ in range(2):
        board = new_board(1, 3)
        assert opened.read([0], base=BASE, board=board, layer_count=3).wait()
        assert (board.states == SliceState.RESIDENT).all()
    wait_until(lambda: opened.stats().counters.get("quarantined_chunks") == 1)
    assert opened.store.match(NAMESPACE, [key(0)]) == 0


def test_a_promotion_that_failed_kept_its_frame_for_ever(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: later puts of that chunk waited for it until their deadlines."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(extent_load, "load_extent", fail)
    opened.fill(1)
    put_durable(opened, [0])
    forget_dram(opened, [0])
    used_bytes = opened.stats().dram_used_bytes
    claims: list[Claim] = []
    claim = opened.store._dram.claim

    def noted(*args: Any, **options: Any) -> Claim | None:
        claimed = claim(*args, **options)
        if claimed is not None:
            claims.append(claimed)
        return claimed

    monkeypatch.setattr(opened.store._dram, "claim", noted)
    for _ in range(2):
        assert opened.read([0], base=BASE, board=new_board(1)).wait()
    wait_until(lambda: bool(claims) and claims[0].frame.durable.done())
    assert claims[0].frame.durable.result() is Reason.INTERNAL
    assert opened.stats().dram_used_bytes == used_bytes
