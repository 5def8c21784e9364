"""One load of a store in memory: order, meeting, failures, and what it gives back."""

from unittest.mock import Mock

import pytest

from engine_adapters.reading.section_reads import CHUNKS_AHEAD
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import LEAST_WAIT_S, ComputeCost, StepCosts, TokenRange
from engine_adapters.vllm.blocks.block_filler import BlockFiller
from engine_adapters.vllm.worker_side.load_bound import SILENCE_S
from engine_adapters.vllm.worker_side.load_job import ASK_AHEAD_S
from kvstored_client import SliceState
from kvstored_contract.board import BoardWord
from tests.engine_adapters.vllm.engine_client import ROOM_BYTES, EngineClient
from tests.engine_adapters.vllm.worker_side.load_job_bench import (
    BLOCK_IDS,
    BLOCK_TOKENS,
    CHUNK_BLOCKS,
    CHUNKS,
    LAYOUT,
    Bench,
    client,
)
from tests.support.waiting import wait_until

__all__ = ["client"]


def test_load_that_is_waited_for_goes_up(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.run_until_asked()
    bench.bring(0, 1, 3)
    bench.run(lambda: len(bench.filled) >= 4)
    assert bench.filled == {0, 1, 2, 3}
    bench.bring(2, 4, 5)
    end = bench.run_to_end()
    assert bench.filled == set(range(12))
    assert end.loaded_blocks == 12
    assert end.lost_chunks == ()
    assert end.dram_bytes == CHUNKS * LAYOUT.chunk_bytes()
    assert bench.job.missing_block_ids == []


def test_overtaken_load_goes_down(client: EngineClient) -> None:
    bench = Bench(client, overtaken=True)
    bench.run_until_asked()
    assert bench.job.first_loaded is None
    bench.bring(5, 4, 2)
    bench.run(lambda: bench.job.first_loaded == 4)
    assert bench.job.first_loaded == 4
    assert bench.filled == {8, 9, 10, 11}


@pytest.mark.parametrize("at_once", [1, CHUNKS])
def test_claimed_chunk_is_not_written_and_those_beside_it_are(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Computing writes to these blocks in the step that runs.

    Bug: where several are brought into blocks at once, one that is computed refused all.
    """
    monkeypatch.setattr(BlockFiller, "chunks_at_once", property(lambda _: at_once))
    bench = Bench(client, overtaken=True)
    bench.run_until_asked()
    bench.job.claim(4)
    bench.bring(*range(CHUNKS))
    assert bench.run_to_end().lost_chunks == ()
    assert bench.filled == {8, 9, 10, 11}
    assert bench.reads[0].pointer == 4


def test_nothing_is_written_after_a_cancel(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.run_until_asked()
    bench.job.cancel()
    bench.bring(*range(CHUNKS))
    bench.job.step()
    assert bench.job.end is not None
    assert not bench.written


def test_lost_chunk_ends_the_load_and_names_its_blocks(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.run_until_asked()
    bench.bring(0, 1, 3, 4, 5)
    bench.reads[0].finish(SliceState.MISSING)
    assert bench.run_to_end().lost_chunks == (2,)
    assert bench.job.missing_block_ids == list(BLOCK_IDS[4:])


@pytest.mark.parametrize("overtaken", [False, True])
def test_spans_are_read_one_after_the_other(client: EngineClient, overtaken: bool) -> None:
    bench = Bench(client, overtaken=overtaken, span_chunks=2)
    bench.run_until_asked(2)
    assert len(bench.reads) == 2
    bench.bring(0, 1)
    bench.run_until_asked(3)
    assert bench.job.first_loaded == (4 if overtaken else 1)
    bench.run(lambda: bench.store.boards_in_use == 2)
    for read in bench.reads[1:]:
        read.deliver()
    assert bench.run_to_end().loaded_blocks == len(BLOCK_IDS)
    wait_until(lambda: bench.job.is_released)
    assert client.free_bytes == ROOM_BYTES


def test_span_ahead_does_not_share_the_devices_with_the_one_that_comes_first(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies further ahead may never be wanted, and delays what is."""
    now = Mock(return_value=100.0)
    monkeypatch.setattr("engine_adapters.vllm.worker_side.load_job.time.monotonic", now)
    bench = Bench(client, overtaken=True, span_chunks=5)
    bench.run_until_asked()
    # Whatever the first of its chunks has been waited for.
    now.return_value += 1.0
    bench.bring(4)
    bench.run(lambda: bench.job.first_loaded == 5)
    assert bench.job.chunks_ahead() == CHUNKS_AHEAD
    now.return_value += ASK_AHEAD_S / 4
    bench.bring(3)
    bench.run(lambda: bench.job.first_loaded == 4)
    assert bench.job.chunks_ahead() == 4, "they come within the time"
    now.return_value += ASK_AHEAD_S
    assert bench.job.chunks_ahead() == CHUNKS_AHEAD


def test_load_that_is_waited_for_keeps_the_devices_busy(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False, span_chunks=3)
    bench.run_until_asked(2)
    assert not bench.written


def test_late_load_is_lost(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.run_until_asked()
    # More than its time-out, which says nothing of how long asking took.
    bench.job._started_s -= 1000.0
    assert bench.run_to_end().lost_chunks == (0,)


def test_full_arena_is_waited_for(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.store.faults.arena_is_full = True
    bench.run(lambda: client.counters.get("allocate_failed", 0) > 2 * CHUNKS)
    assert bench.job.end is None
    bench.store.faults.arena_is_full = False
    bench.run_until_asked()


def test_lost_daemon_ends_the_load(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False, span_chunks=3)
    bench.run_until_asked(2)
    bench.bring(0, 1, 2)
    bench.store.kill()
    assert bench.run_to_end().lost_chunks == (3,)


def test_read_that_raises_is_a_miss(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(client, "read", fail)
    bench = Bench(client, overtaken=False)
    assert bench.run_to_end().lost_chunks == (0,)
    wait_until(lambda: bench.job.is_released)
    assert client.free_bytes == ROOM_BYTES


def test_region_is_kept_until_the_daemon_has_let_go(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.run_until_asked()
    (read,) = bench.reads
    bench.job.cancel()
    bench.run_to_end()
    assert read.is_cancelled
    assert not bench.job.is_released
    assert client.free_bytes < ROOM_BYTES
    read.finish()
    wait_until(lambda: bench.job.is_released)
    assert bench.store.boards_in_use == 0
    assert client.free_bytes == ROOM_BYTES


def test_abandoned_load_ends_once(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.job.abandon()
    end = bench.job.end
    bench.job.abandon()
    assert bench.job.end is end
    assert not bench.job.step()
    assert bench.job.is_released


def test_a_load_of_which_nobody_knew_its_bytes_never_ended(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the failure came again when the load was given up, and ended the loader's thread."""
    bench = Bench(client, overtaken=False)
    monkeypatch.setattr(SpanReader, "read_bytes", Mock(side_effect=OSError("lost")))
    bench.run_until_asked()
    bench.bring(*range(CHUNKS))
    with pytest.raises(OSError, match="lost"):
        bench.run_to_end()
    assert bench.job.end is not None
    assert bench.job.end.loaded_blocks == len(BLOCK_IDS)
    bench.job.abandon()
    wait_until(lambda: bench.job.is_released)


def test_a_failure_after_the_last_chunk_lost_one_that_does_not_exist(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: chunk -1 was reported, and the scheduler saved from there on."""
    bench = Bench(client, overtaken=False)
    monkeypatch.setattr(SpanReader, "give_back", Mock(side_effect=OSError("lost")))
    bench.run_until_asked()
    bench.bring(*range(CHUNKS))
    with pytest.raises(OSError, match="lost"):
        bench.run_to_end()
    bench.job.abandon()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == ()
    assert bench.job.end.loaded_blocks == len(BLOCK_IDS)
    wait_until(lambda: bench.job.is_released)


def test_overtaken_loads_woke_each_other(client: EngineClient) -> None:
    """Bug: each report of the daemon woke the reader of every load, which took the interpreter."""
    bench = Bench(client, overtaken=True, span_chunks=4)
    bench.run_until_asked()
    bench.bring(3)
    bench.run(lambda: bench.job.first_loaded is not None)
    assert not bench.reads[0]._board.words[BoardWord.WATCHED]
    bench.bring(2, 1, 0)
    bench.run_until_asked(2)
    bench.reads[1].deliver()
    bench.run_to_end()


def costs_of(token_s: float) -> StepCosts:
    """Of an engine that takes so long for each token."""
    return StepCosts(
        ComputeCost(step_s=0.0, token_s=token_s, attention_s=0.0), step_tokens=CHUNKS * 8
    )


WHOLE_S = 100.0
TOKENS = CHUNKS * CHUNK_BLOCKS * BLOCK_TOKENS
"""Of the load, which an engine takes ``WHOLE_S`` to compute in the tests below."""


def test_a_silent_store_was_waited_for_ten_seconds_where_computing_took_less(
    client: EngineClient,
) -> None:
    """Bug: a load had a time-out of its own, and was compared with nothing."""
    bench = Bench(client, overtaken=False, timeout_s=600.0, costs=costs_of(WHOLE_S / TOKENS))
    bench.run_until_asked()
    bench.pass_time(LEAST_WAIT_S)
    assert bench.job.end is None
    bench.pass_time(0.05 * WHOLE_S)
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (0,)
    assert bench.job.missing_block_ids == list(BLOCK_IDS)


def test_what_came_before_a_store_fell_silent_is_kept(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False, timeout_s=600.0, costs=costs_of(WHOLE_S / TOKENS))
    bench.run_until_asked()
    bench.pass_time(0.005 * WHOLE_S)
    bench.bring(0, 1)
    bench.run(lambda: bench.job.first_loaded == 1)
    bench.pass_time(0.05 * WHOLE_S)
    assert bench.job.end is None, "two chunks have saved a third of computing"
    bench.pass_time(0.35 * WHOLE_S)
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (2,)
    assert bench.filled == {0, 1, 2, 3}


def test_a_store_that_keeps_its_pace_is_waited_for(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False, timeout_s=600.0, costs=costs_of(WHOLE_S / TOKENS))
    bench.run_until_asked()
    for chunk in range(CHUNKS):
        bench.pass_time(0.009 * WHOLE_S)
        bench.bring(chunk)
        bench.run(lambda chunk=chunk: bench.job.first_loaded == chunk)  # type: ignore[misc]
    assert bench.run_to_end().lost_chunks == ()


def test_an_overtaken_load_is_not_waited_for(client: EngineClient) -> None:
    """Its request computes meanwhile, so that nothing is lost by it."""
    bench = Bench(client, overtaken=True, timeout_s=600.0, costs=costs_of(WHOLE_S / TOKENS))
    bench.run_until_asked()
    bench.pass_time(WHOLE_S)
    assert bench.job.end is None


def test_the_first_step_of_an_engine_limits_a_load_that_runs(client: EngineClient) -> None:
    """Before it nobody knows what computing takes, and a store that brings bytes is waited for."""
    costs = StepCosts(None, step_tokens=64)
    bench = Bench(client, overtaken=False, timeout_s=600.0, costs=costs)
    bench.run_until_asked()
    for chunk in (0, 1):
        bench.pass_time(0.9 * SILENCE_S)
        bench.bring(chunk)
        bench.run(lambda chunk=chunk: bench.job.first_loaded == chunk)  # type: ignore[misc]
    bench.pass_time(0.9 * SILENCE_S)
    assert bench.job.end is None
    costs.measure(TokenRange(0, 64), 0.64)
    bench.pass_time(LEAST_WAIT_S)
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (2,)


def test_a_silent_store_was_waited_for_ten_seconds_before_the_first_step(
    client: EngineClient,
) -> None:
    """Bug: until an engine had computed a prompt, nothing but the time-out ended a load."""
    bench = Bench(client, overtaken=False, timeout_s=600.0, costs=StepCosts(None, step_tokens=64))
    bench.run(lambda: bool(bench.job._reader.spans))
    bench.pass_time(0.9 * SILENCE_S)
    assert bench.job.end is None
    bench.pass_time(0.2 * SILENCE_S)
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (0,)
    assert bench.job.missing_block_ids == list(BLOCK_IDS)


def test_a_load_that_waits_for_room_meets_no_silence_of_the_store(client: EngineClient) -> None:
    """Nothing was asked for: other loads have the arena, and only the time-out ends the wait."""
    room = client.allocate(client.free_bytes, connects=False)
    assert room is not None
    bench = Bench(client, overtaken=False, timeout_s=600.0, costs=StepCosts(None, step_tokens=64))
    bench.job.step()
    bench.pass_time(0.9 * SILENCE_S)
    bench.pass_time(9 * SILENCE_S)
    assert bench.job.end is None
    room.release()
    bench.run(lambda: bool(bench.job._reader.spans))
    bench.pass_time(0.9 * SILENCE_S)
    assert bench.job.end is None
    bench.bring(*range(CHUNKS))
    assert bench.run_to_end().lost_chunks == ()
