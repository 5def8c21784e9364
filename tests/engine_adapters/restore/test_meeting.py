"""Ten tokens a chunk; a token takes 1 s, and a step 5 s besides."""

import math

from engine_adapters.restore.meeting import compute_stop
from engine_adapters.restore.ranges import History, true_ranges


def stop(
    *arrival_s: float | None,
    position: int = 0,
    project_s: float = 0.0,
    new: int = 1,
    doubt: float = 1.0,
) -> int:
    history = History(
        prompt_tokens=10 * len(arrival_s) + new,
        chunk_tokens=10,
        is_stored=tuple(wait_s is not None for wait_s in arrival_s),
    )
    ahead = history.chunks_behind(position)
    return compute_stop(
        history,
        position,
        [
            chunks
            for chunks in true_ranges([wait_s is not None for wait_s in arrival_s])
            if chunks[0] in ahead
        ],
        compute_s=lambda first, last: (last - first) + (5 if last > first else 0),
        wait_s=lambda chunk: arrival_s[chunk] or 0.0,
        project_s=project_s,
        doubt=doubt,
    )


def test_chunks_that_come_later_than_they_are_computed_are_computed() -> None:
    assert stop(90.0, 60.0, 30.0, 0.0) == 20
    assert stop(90.0, 15.5, 0.0, 0.0) == 10


def test_nothing_is_computed_when_the_reader_is_faster() -> None:
    assert stop(4.0, 3.0, 2.0, 1.0) == 0
    assert stop(4.0, 3.0, 2.0, 1.0, position=3) == 3
    assert stop(0.0, 0.0) == 0


def test_a_run_that_is_not_worth_a_step_is_computed_with_what_is_behind_it() -> None:
    # Jumping over 10 tokens saves 10 s; the step that ends before them costs 5 s.
    assert stop(None, 0.0, None) == 10
    assert stop(None, 11.0, None, new=30) == 10
    assert stop(None, 21.0, None, new=30) == 60


def test_what_had_arrived_was_computed_again_because_a_step_seemed_to_cost_much() -> None:
    """A profile that was taken in a bad moment says so: then nothing was ever jumped over.

    Two of 13 tokens are there. All take 18 s; those before them 15 s and the last one 6 s.
    """
    assert stop(None, 0.0, new=-7) == 13
    assert stop(None, 0.0, new=-7, doubt=1.1) == 13
    assert stop(None, 0.0, new=-7, doubt=1.5) == 10


def test_behind_such_a_run_it_is_the_next_ones_turn() -> None:
    assert stop(None, 99.0, None, 0.0, 0.0) == 30


def test_without_chunks_on_their_way_all_is_computed() -> None:
    assert stop(None, None) == 21
    assert stop(0.0, 0.0, position=20) == 21


def test_a_gap_behind_the_run_counts_with_its_own_step() -> None:
    # Waiting: 20 s, then 5 + 11 s. Computing on: 5 + 21 s.
    assert stop(20.0, None) == 21
    assert stop(9.0, None) == 0


def test_projection_shifts_the_meeting_to_fewer_loaded_chunks() -> None:
    waits = (60.0, 45.0, 30.0, 15.0)
    assert stop(*waits) == 20
    assert stop(*waits, project_s=8.0) > 20
    assert stop(*waits, project_s=math.inf) == 41
