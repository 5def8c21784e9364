"""What a worker makes of the arena that it was given."""

import threading
from dataclasses import replace

import pytest
import torch

from engine_adapters.restore import StepCosts, TokenRange
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder, SaveOrder, StepOrders
from engine_adapters.vllm.settings.options import AdapterOptions
from engine_adapters.vllm.worker_side.meetings import Meetings
from engine_adapters.vllm.worker_side.side import LOGGER, CacheShape, WorkerSide, span_chunks_for
from kvstored_client import Client, LayerState, StateKind, StateLayout
from tests.engine_adapters.vllm.engine_client import EngineClient
from tests.engine_adapters.vllm.worker_side.thread_ranks import ranks_of
from tests.kvstored_client.gate import Gate
from tests.support.threads import together
from tests.support.waiting import PATIENCE_S, wait_until

MIB = 1024 * 1024
SMALL_BYTES, LARGE_BYTES = 4096, 64 * MIB
"""Of arenas without room for a chunk, and with room for many."""


@pytest.mark.parametrize(
    ("room_mib", "chunks"),
    [(240, 32), (96, 32), (60, 20), (3, 1), (2, 1), (1, 1), (0, 0)],
)
def test_two_reads_and_a_save_have_room(room_mib: int, chunks: int) -> None:
    """Bug: a span as large as the arena was never read, and each load ran into its deadline."""
    assert span_chunks_for(MIB, room_bytes=room_mib * MIB, span_bytes=32 * MIB) == chunks


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


def layout_of(kind: StateKind) -> StateLayout:
    """One layer of 1024 bytes a token."""
    return StateLayout(model="m", dtype="float32", layers=(LayerState(kind, 1024),), chunk_tokens=8)


def side_of(
    client: Client,
    kind: StateKind,
    blocks: torch.Tensor | None = None,
    options: AdapterOptions | None = None,
    meetings: Meetings | None = None,
) -> WorkerSide:
    """Closes the client when it is closed; ``blocks`` are the engine's, [4, 4, 256] in float32."""
    side = WorkerSide(
        client,
        options or AdapterOptions(),
        lambda fingerprint: layout_of(kind),
        shape=CacheShape(
            dtype=torch.float32,
            block_count=4,
            block_tokens=4,
            layer_names=("layer0",),
            open_blocks_max=4,
        ),
        costs=StepCosts(None, step_tokens=64),
        meetings=meetings,
    )
    side.use_caches({"layer0": torch.zeros(4, 4, 256) if blocks is None else blocks})
    return side


def test_arena_without_room_for_a_chunk_is_told_once_and_loads_are_lost_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    side = side_of(EngineClient(room_bytes=SMALL_BYTES), StateKind.KV)
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


@pytest.mark.parametrize(
    ("blocks", "word"),
    [
        (torch.zeros(4, 4, 128), "a block of layer 0 has 2048 bytes and not 4096"),
        (torch.zeros(4, 4, 256, device="meta"), "no way to copy to meta"),
        (torch.zeros(4, 4, 512)[:, :, ::2], "no runs of bytes"),
    ],
)
def test_blocks_that_cannot_be_moved_are_told_once_and_loads_are_lost(
    blocks: torch.Tensor, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    side = side_of(EngineClient(room_bytes=LARGE_BYTES), StateKind.KV, blocks)
    for _ in range(2):
        side.begin_step(StepOrders(fingerprint="m", loads=(LOAD,)))
    assert side.take_finished(is_idle=True) == {"a"}
    (sentence,) = told
    assert word in sentence
    side.close()


def test_worker_that_is_off_names_no_blocks_of_a_running_request() -> None:
    """Bug: the scheduler took computed blocks of it, and of all that shared them, for lost ones."""
    side = side_of(EngineClient(room_bytes=SMALL_BYTES), StateKind.KV)
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
    side = side_of(EngineClient(room_bytes=LARGE_BYTES), StateKind.HIDDEN)
    side.use_model(torch.nn.Linear(2, 2), LayerHooks())
    for _ in range(2):
        side.begin_step(StepOrders(fingerprint="m"))
    (sentence,) = told
    assert "Linear has no model.layers" in sentence
    assert "use mode prefix or cake" in sentence
    side.close()


def test_worker_that_has_a_save_on_its_way_is_not_passed_by() -> None:
    client = EngineClient(room_bytes=LARGE_BYTES)
    gate = Gate(client.store)
    side = side_of(client, StateKind.KV)
    assert not side.is_settled, "the first orders open the layout"
    orders = StepOrders(fingerprint="m", saves=(SAVE,))
    side.begin_step(orders)
    side.end_forward(orders)
    side.take_report()
    assert not side.is_settled
    gate.open()
    wait_until(lambda: not side.is_saving)
    assert side.take_report().is_empty
    assert not side.is_settled, "what it counted is not told"
    assert side.take_counts() == {"saved_tokens": 8}
    assert side.take_report().is_empty
    assert side.is_settled
    side.begin_step(orders)
    assert not side.is_settled
    side.close()


@pytest.mark.parametrize("fails_first", [False, True])
def test_nothing_is_saved_after_a_forward_that_failed(fails_first: bool) -> None:
    """Also where the layout is not known yet: later chunks rest on what was not computed."""
    client = EngineClient(room_bytes=LARGE_BYTES)
    side = side_of(client, StateKind.KV)
    orders = StepOrders(fingerprint="m", saves=(SAVE,))
    if fails_first:
        side.begin_step(StepOrders(fingerprint=""))
        side.end_forward(StepOrders(fingerprint=""), has_failed=True)
    else:
        side.begin_step(orders)
        side.end_forward(orders, has_failed=True)
        assert side.take_counts() == {"dropped_saves": 1}
    side.begin_step(orders)
    side.end_forward(orders)
    assert side.take_counts() == {"dropped_saves": 1}
    assert not side.is_saving
    side.take_report()
    side.close()
    assert not client.store.chunks


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_worker_that_has_a_load_on_its_way_is_not_passed_by(is_overtaken: bool) -> None:
    client = EngineClient(room_bytes=LARGE_BYTES)
    layout = layout_of(StateKind.KV)
    client.keep(layout, rank_key(LOAD.chain_keys[0], layout.layout_id), fills=[1])
    side = side_of(client, StateKind.KV)
    side.begin_step(StepOrders(fingerprint="m", loads=(replace(LOAD, overtaken=is_overtaken),)))
    side.take_report()
    assert not side.is_settled
    wait_until(lambda: bool(client.store.reads))
    (read,) = client.store.reads
    read.deliver()
    wait_until(lambda: bool(side.take_report().ends))
    assert not side.is_settled, "neither the request nor its cancel has been told"
    if is_overtaken:
        side.begin_step(StepOrders(fingerprint="m", cancels=frozenset({LOAD.load_id})))
    assert side.take_finished(is_idle=False) == (set() if is_overtaken else {"a"})
    side.take_report()
    assert side.is_settled
    side.close()


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_blocks_of_a_cancelled_load_are_not_written_any_more(is_cancelled: bool) -> None:
    """vLLM has given them to another request by then."""
    client = EngineClient(room_bytes=LARGE_BYTES)
    layout = layout_of(StateKind.KV)
    client.keep(layout, rank_key(LOAD.chain_keys[0], layout.layout_id), fills=[1])
    blocks = torch.zeros(4, 4, 256)
    side = side_of(client, StateKind.KV, blocks)
    side.begin_step(StepOrders(fingerprint="m", loads=(replace(LOAD, overtaken=True),)))
    wait_until(lambda: bool(client.store.reads))
    if is_cancelled:
        side.begin_step(StepOrders(fingerprint="m", cancels=frozenset({LOAD.load_id})))
    (read,) = client.store.reads
    read.deliver()
    wait_until(lambda: bool(side.take_report().ends))
    assert blocks.any() != is_cancelled
    side.close()


def test_worker_tells_once_that_the_daemon_refuses_it_and_once_that_it_does_not() -> None:
    client = EngineClient(room_bytes=LARGE_BYTES)
    side = side_of(client, StateKind.KV)
    side.begin_step(StepOrders(fingerprint="m"))
    assert side.take_report().is_empty
    client.store.faults.session_refusal = "no"
    client.store.kill()
    client.store.start()
    wait_until(lambda: client.refusal == "no")
    reports = [side.take_report() for _ in range(2)]
    assert [report.refusals for report in reports] == [{0: "no"}, {}]
    side.take_counts()
    side.take_report()
    assert not side.is_settled, "it would never be asked again"
    client.store.faults.session_refusal = ""
    wait_until(lambda: client.available())
    reports = [side.take_report() for _ in range(2)]
    assert [report.refusals for report in reports] == [{0: ""}, {}]
    side.take_counts()
    side.take_report()
    assert side.is_settled
    side.close()


PATIENT = AdapterOptions(load_timeout_ms=600_000, least_wait_ms=1)


def test_a_load_of_a_slow_store_ran_into_its_time_out_though_steps_are_fast() -> None:
    """Bug: whatever computing took, a request waited ``load_timeout_ms`` for a silent store."""
    client = EngineClient(room_bytes=LARGE_BYTES)
    layout = layout_of(StateKind.KV)
    client.keep(layout, rank_key(LOAD.chain_keys[0], layout.layout_id), fills=[1])
    side = side_of(client, StateKind.KV, options=PATIENT)
    side.begin_step(StepOrders(fingerprint="m"))
    prefill = StepOrders(fingerprint="m", tokens=TokenRange(0, 64), other_tokens=3)
    side.begin_step(prefill)
    side.end_forward(prefill)
    side.begin_step(StepOrders(fingerprint="m", loads=(LOAD,)))
    ended: list[LoadEnd] = []

    def has_ended() -> bool:
        ended.extend(side.take_report().ends)
        return bool(ended)

    # On a busy machine the load is given up before it has asked for anything.
    wait_until(has_ended)
    assert [end.lost_chunks for end in ended] == [(0,)]
    assert side.take_bad_blocks() == {0, 1}
    assert side.take_finished(is_idle=False) == {"a"}
    for read in client.store.reads:
        read.finish()
    side.close()


def test_steps_without_a_prompt_measure_nothing() -> None:
    client = EngineClient(room_bytes=LARGE_BYTES)
    side = side_of(client, StateKind.KV, options=PATIENT)
    for _ in range(2):
        side.begin_step(StepOrders(fingerprint="m"))
        side.end_forward(StepOrders(fingerprint="m"))
    assert side._steps.costs.compute is None
    side.close()


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_the_engines_end_during_a_load_ended_a_thread_and_kept_the_region(
    is_overtaken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the load's future was cancelled, which raised in the loader's thread, so that nobody
    released the region of the arena any more."""
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    client = EngineClient(room_bytes=LARGE_BYTES)
    held_bytes: list[int] = []
    monkeypatch.setattr(
        client, "close", lambda: held_bytes.append(client.store.region_bytes_in_use)
    )
    layout = layout_of(StateKind.KV)
    client.keep(layout, rank_key(LOAD.chain_keys[0], layout.layout_id), fills=[1])
    before = set(threading.enumerate())
    side = side_of(client, StateKind.KV)
    side.begin_step(StepOrders(fingerprint="m", loads=(replace(LOAD, overtaken=is_overtaken),)))
    wait_until(lambda: bool(client.store.reads))
    (read,) = client.store.reads
    assert client.store.region_bytes_in_use > 0
    ending = threading.Thread(target=side.close)
    ending.start()
    wait_until(lambda: read.is_cancelled)
    read.finish()
    ending.join(PATIENCE_S)
    assert held_bytes == [0], "an engine goes on with the same arena"
    wait_until(lambda: set(threading.enumerate()) <= before)
    assert failures == []


@pytest.mark.parametrize("raises", [False, True])
def test_a_rank_that_is_off_comes_to_every_meeting(raises: bool) -> None:
    """The others wait for it."""
    ranks = ranks_of(2)
    # Without room for a chunk, or with orders that nobody makes.
    side = side_of(EngineClient(room_bytes=SMALL_BYTES), StateKind.KV, meetings=Meetings(ranks[0]))
    others = Meetings(ranks[1])
    others.open(LOAD.load_id)
    orders = StepOrders(fingerprint="m", loads=(LOAD,), meetings=(LOAD.load_id,))
    if raises:
        orders = replace(orders, loads=None)  # type: ignore[arg-type]
    failures: list[TypeError] = []

    def begin() -> None:
        try:
            side.begin_step(orders)
        except TypeError as error:
            failures.append(error)

    together(begin, lambda: others.meet(orders.meetings))
    assert others.is_parted(LOAD.load_id)
    assert bool(failures) is raises
    side.close()


def test_meetings_were_part_of_what_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: computing was taken for slower by what ranks wait for each other."""
    order: list[str] = []
    meetings = Meetings(ranks_of(1)[0])
    side = side_of(EngineClient(room_bytes=LARGE_BYTES), StateKind.KV, meetings=meetings)
    monkeypatch.setattr(meetings, "meet", lambda load_ids: order.append("meet"))
    monkeypatch.setattr(side._steps, "begin", lambda: order.append("begin"))
    side.begin_step(StepOrders(fingerprint="m", meetings=(1,)))
    assert order == ["meet", "begin"]
    side.close()
