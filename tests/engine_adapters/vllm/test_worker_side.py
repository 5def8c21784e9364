"""What a worker makes of the arena that it was given."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from engine_adapters.vllm.block_span import BlockSpan
from engine_adapters.vllm.layer_hooks import LayerHooks
from engine_adapters.vllm.options import AdapterOptions
from engine_adapters.vllm.orders import LoadOrder, SaveOrder, StepOrders
from engine_adapters.vllm.worker_side import LOGGER, WorkerSide, span_chunks_for
from kvstored_client import (
    LayerState,
    StateKind,
    StateLayout,
)
from tests.engine_adapters.vllm.scripted_store import HeldPuts, ScriptedClient
from tests.support.waiting import wait_until

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("room_mib", "chunks"),
    [(240, 32), (96, 32), (60, 20), (3, 1), (2, 1), (1, 1), (0, 0)],
)
def test_two_reads_and_a_save_have_room(room_mib: int, chunks: int) -> None:
    """Bug: a span as large as the arena was never read, and each load ran into its deadline."""
    assert span_chunks_for(MIB, room_bytes=room_mib * MIB, span_bytes=32 * MIB) == chunks


class SmallArena(ScriptedClient):
    region_bytes_max = 4096

    def available(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing."""


class LargeArena(SmallArena):
    region_bytes_max = 64 * MIB


class HeldArena(HeldPuts, LargeArena):
    """A large one."""


SAVE = SaveOrder(
    request_id="a", first_chunk=0, parent_key=b"", chain_keys=(b"s" * 32,), block_ids=(2, 3)
)
LOAD = LoadOrder(
    load_id=7,
    request_id="a",
    span=BlockSpan(first_block=0, block_ids=(0, 1), chunk_blocks=2),
    chain_keys=(b"k" * 32,),
    overtaken=False,
)


def side_of(client: ScriptedClient, kind: StateKind) -> WorkerSide:
    """With one layer of 1024 bytes a token in its layout."""
    layout = StateLayout(
        model="m", dtype="float32", layers=(LayerState(kind, 1024),), chunk_tokens=8
    )
    side = WorkerSide(
        cast("Any", client),
        AdapterOptions(),
        lambda fingerprint: layout,
        dtype=torch.float32,
        block_tokens=4,
        layer_names=("layer0",),
        open_blocks_max=4,
    )
    side.use_caches({"layer0": torch.zeros(4, 4, 256)})
    return side


def test_arena_without_room_for_a_chunk_is_told_once_and_loads_are_lost_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    side = side_of(SmallArena(), StateKind.KV)
    side.begin_step(StepOrders(fingerprint="m", loads=(LOAD,)))
    assert side.take_finished(is_idle=True) == {"a"}
    assert side.take_bad_blocks() == {0, 1}
    (end,) = side.take_report().ends
    assert end.lost_chunks == (0,)
    side.begin_step(StepOrders(fingerprint="m"))
    (sentence,) = told
    assert "a chunk has 8192 bytes and arena_bytes room for 4096" in sentence
    assert "set a larger arena_bytes or a smaller chunk_tokens" in sentence
    side.close()


def test_worker_that_is_off_names_no_blocks_of_a_running_request() -> None:
    """Bug: the scheduler took computed blocks of it, and of all that shared them, for lost ones."""
    side = side_of(SmallArena(), StateKind.KV)
    side.begin_step(StepOrders(fingerprint="m", loads=(replace(LOAD, overtaken=True),)))
    assert side.take_finished(is_idle=False) == set()
    assert side.take_bad_blocks() == set()
    (end,) = side.take_report().ends
    assert end.lost_chunks == (0,)
    side.close()


def test_model_of_another_shape_is_told_once_and_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: the engine's first step ended with LayerShapeError."""
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    side = side_of(LargeArena(), StateKind.HIDDEN)
    side.use_model(torch.nn.Linear(2, 2), LayerHooks())
    for _ in range(2):
        side.begin_step(StepOrders(fingerprint="m"))
    (sentence,) = told
    assert "Linear has no model.layers" in sentence
    assert "use mode prefix or cake" in sentence
    side.close()


def test_worker_that_has_a_save_on_its_way_is_not_passed_by() -> None:
    client = HeldArena()
    side = side_of(client, StateKind.KV)
    assert not side.is_settled, "the first orders open the layout"
    orders = StepOrders(fingerprint="m", saves=(SAVE,))
    side.begin_step(orders)
    side.end_forward(orders)
    side.take_report()
    assert not side.is_settled
    client.goes_on.set()
    wait_until(lambda: not side.is_saving)
    assert side.take_report().stored_keys == {0: SAVE.chain_keys}
    assert not side.is_settled, "what it counted is not told"
    assert side.take_counts() == {"saved_tokens": 8}
    assert side.take_report().is_empty
    assert side.is_settled
    side.begin_step(orders)
    assert not side.is_settled
    side.close()


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_worker_that_has_a_load_on_its_way_is_not_passed_by(is_overtaken: bool) -> None:
    client = HeldArena()
    side = side_of(client, StateKind.KV)
    side.begin_step(StepOrders(fingerprint="m", loads=(replace(LOAD, overtaken=is_overtaken),)))
    side.take_report()
    assert not side.is_settled
    wait_until(lambda: bool(client.reads))
    (read,) = client.reads
    read.bring(0)
    read.end()
    ends = []
    wait_until(lambda: bool(ends.extend(side.take_report().ends) or ends))
    assert not side.is_settled, "neither the request nor its cancel has been told"
    if is_overtaken:
        side.begin_step(StepOrders(fingerprint="m", cancels=frozenset({LOAD.load_id})))
    assert side.take_finished(is_idle=False) == (set() if is_overtaken else {"a"})
    side.take_report()
    assert side.is_settled
    side.close()
