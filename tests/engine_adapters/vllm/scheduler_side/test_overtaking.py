from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.vllm.scheduler_side.overtaking import Overtaking
from engine_adapters.vllm.scheduler_side.pace import Pace


def overtaking(
    first_loaded: int | None = None, *, stop_token: int = 640, pace: Pace | None = None
) -> Overtaking:
    result = Overtaking(stop_token=stop_token, chunk_tokens=64, pace=pace or Pace())
    if first_loaded is not None:
        result.loaded_from(first_loaded)
    return result


def meeting_token(pace: Pace) -> int:
    """Where a whole history of ten chunks will meet by what was learnt."""
    return pace.meeting_token(0, first_loaded=10, stop_token=640, chunk_tokens=64)


def test_no_jump_before_anything_is_loaded() -> None:
    assert overtaking().jump_from(639) is None


def test_no_jump_over_a_gap() -> None:
    assert overtaking(5).jump_from(319) is None


def test_jump_where_the_pointers_meet() -> None:
    pointers = overtaking(5)
    assert pointers.jump_from(320) == 640


def test_one_jump_only() -> None:
    pointers = overtaking(0)
    pointers.jump_from(0)
    assert pointers.jump_from(0) is None


def test_no_jump_from_behind_what_is_loaded() -> None:
    """The request has computed everything itself: its position must not move back."""
    assert overtaking(0).jump_from(640) is None


def test_pointer_of_loading_never_rises() -> None:
    pointers = overtaking(3)
    pointers.loaded_from(5)
    assert pointers.frontier_token == 192


def test_step_ends_at_the_frontier() -> None:
    assert overtaking(5).clipped(256, 128) == 64


def test_step_is_whole_while_nothing_is_loaded_or_after_the_jump() -> None:
    assert overtaking().clipped(256, 128) == 128
    pointers = overtaking(5)
    pointers.jump_from(400)
    assert pointers.clipped(256, 128) == 128


def load(pointers: Overtaking, pace: Pace, *frontiers: int) -> int:
    """Steps of 128 tokens from the first on, after each of which a chunk is the first loaded."""
    pointers.begin_loading()
    position = 0
    for first_loaded in frontiers:
        pace.computed_tokens += 128
        position += 128
        pointers.loaded_from(first_loaded)
        pointers.jump_from(position)
    return position


def test_step_ends_where_both_will_meet() -> None:
    """While two chunks are computed one is loaded: four are left, of which it loads one."""
    pace = Pace()
    pointers = overtaking(pace=pace)
    position = load(pointers, pace, 9, 8)
    assert pointers.clipped(position, 512) == 192


def test_step_is_not_shortened_for_a_load_that_has_ended() -> None:
    pace = Pace()
    pointers = overtaking(pace=pace)
    position = load(pointers, pace, 9, 8)
    pointers.end_loading()
    assert pointers.clipped(position, 512) == 256


def test_first_step_is_shortened_by_what_others_have_learnt() -> None:
    pace = Pace()
    pace.add(computed_tokens=1000, loaded_tokens=9000, is_bound=False)
    assert overtaking(pace=pace).clipped(0, 512) == 64
    assert overtaking().clipped(0, 512) == 320


def test_load_that_ends_a_step_early_is_learnt_as_faster_than_it_seemed() -> None:
    """What is jumped over was not computed, and what was claimed could not be loaded."""
    pace = Pace()
    pointers = overtaking(pace=pace)
    load(pointers, pace, 2)
    assert pointers.clipped(128, 512) == 512, "it has jumped"
    pace.computed_tokens += 1000
    pointers.clipped(640, 1)
    assert meeting_token(pace) == 128


def test_what_is_decoded_says_nothing_of_the_store() -> None:
    """Bug: a request that computed all of its prompt made the store look slower with each token."""
    pace = Pace()
    pace.add(computed_tokens=1000, loaded_tokens=9000, is_bound=False)
    pointers = overtaking(pace=pace)
    load(pointers, pace, 10, 10, 10, 10, 10)
    before = overtaking(pace=pace).clipped(0, 512)
    for token in range(640, 2000):
        pace.computed_tokens += 1
        pointers.clipped(token, 1)
    assert overtaking(pace=pace).clipped(0, 512) == before


def test_steps_of_others_are_time_for_the_load() -> None:
    """Bug: a request that got three tokens of a step had its load pass for very fast."""
    pace = Pace()
    pointers = overtaking(pace=pace)
    pointers.begin_loading()
    pace.computed_tokens += 512
    pointers.loaded_from(2)
    pointers.jump_from(3)
    assert overtaking(pace=pace).clipped(0, 512) == 320


def test_load_that_waits_for_the_jump_is_learnt_once() -> None:
    """Bug: each step of others until the jump doubled what was believed of the store."""
    pace = Pace()
    pointers = overtaking(pace=pace)
    pointers.begin_loading()
    for position in range(3, 33, 3):
        pace.computed_tokens += 512
        pointers.loaded_from(1)
        pointers.jump_from(position)
    assert meeting_token(pace) == 192


def test_a_step_lasted_longer_than_all_that_was_still_to_be_loaded() -> None:
    """A store eight times as fast as computing brings the other 512 tokens while 64 are computed.

    Steps of 128 tokens up to the meeting were slower than loading alone: the first of them took
    as long as two chunks of 64 do, while all was loaded.
    """
    pace = Pace()
    for _ in range(8):
        pace.add(computed_tokens=64, loaded_tokens=512, is_bound=False)
    pointers = overtaking(stop_token=2048, pace=pace)
    assert pace.meeting_token(0, first_loaded=32, stop_token=2048, chunk_tokens=64) == 192
    assert pointers.clipped(0, 512) == 128
    pointers.loaded_from(16)
    assert pointers.clipped(128, 512) == 64


def test_step_reaches_the_next_chunk_at_least() -> None:
    """A request that runs computes something; the rest of its chunk is nobody else's."""
    pace = Pace()
    pace.add(computed_tokens=1000, loaded_tokens=10**6, is_bound=False)
    assert overtaking(pace=pace).clipped(70, 128) == 58
    assert overtaking(pace=pace).clipped(128, 128) == 64


def test_step_is_never_empty() -> None:
    assert overtaking(4).clipped(256, 128) == 128


@given(st.data())
def test_every_token_is_computed_or_loaded(data: st.DataObject) -> None:
    """Whatever the speeds: no token between the start and the prompt's end is left out."""
    pace = Pace()
    pointers = overtaking(pace=pace)
    pointers.begin_loading()
    position, first_loaded, covered = 0, 10, [False] * 641
    while position < 641:
        count = pointers.clipped(position, min(data.draw(st.integers(1, 128)), 641 - position))
        covered[position : position + count] = [True] * count
        position += count
        pace.computed_tokens += count
        claimed = -(-position // 64)
        first_loaded = max(first_loaded - data.draw(st.integers(0, 3)), min(first_loaded, claimed))
        if first_loaded < 10:
            pointers.loaded_from(first_loaded)
        target = pointers.jump_from(position)
        if target is not None:
            assert first_loaded * 64 <= position
            covered[position:target] = [True] * (target - position)
            position = target
    assert all(covered)
