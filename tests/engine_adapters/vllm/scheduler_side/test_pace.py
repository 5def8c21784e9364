from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.vllm.scheduler_side.pace import LOADED_MOST, TOKENS_REMEMBERED, Pace

CHUNK, STOP = 64, 640


def meeting(pace: Pace, position: int = 0, first_loaded: int = 10, stop_token: int = STOP) -> int:
    return pace.meeting_token(
        position, first_loaded=first_loaded, stop_token=stop_token, chunk_tokens=CHUNK
    )


def pace_of(loaded_for_one: float) -> Pace:
    pace = Pace()
    pace.add(computed_tokens=1000, loaded_tokens=int(1000 * loaded_for_one), is_bound=False)
    return pace


def test_as_fast_as_computing_before_anything_was_seen() -> None:
    assert meeting(Pace()) == STOP // 2


def test_equal_speeds_meet_in_the_middle() -> None:
    assert meeting(pace_of(1.0)) == STOP // 2
    assert meeting(pace_of(1.0), position=128, first_loaded=6) == 256


def test_fast_loading_leaves_little_to_compute() -> None:
    assert meeting(pace_of(9.0)) == CHUNK
    assert meeting(pace_of(60.0)) == 0


def test_store_that_stands_still_is_not_waited_for() -> None:
    assert meeting(pace_of(0.0)) >= STOP
    assert meeting(pace_of(0.0), first_loaded=7) == 7 * CHUNK


def test_last_chunk_that_computing_has_begun_is_not_loaded() -> None:
    assert meeting(pace_of(1.0), position=STOP - 1) >= STOP


def test_what_was_seen_long_ago_is_forgotten() -> None:
    pace = pace_of(50.0)
    pace.add(computed_tokens=TOKENS_REMEMBERED, loaded_tokens=TOKENS_REMEMBERED, is_bound=False)
    assert meeting(pace) == STOP // 2


def test_one_sample_is_believed_within_bounds() -> None:
    """A request that computed one token while all of it came says little of the next."""
    pace = Pace()
    pace.add(computed_tokens=512, loaded_tokens=10**9, is_bound=False)
    chunks = int(LOADED_MOST) * 4
    assert meeting(pace, first_loaded=chunks, stop_token=chunks * CHUNK) >= 3 * CHUNK


def test_load_that_was_over_sooner_than_computing_is_tried_with_less_each_time() -> None:
    """Bug: what was left for it passed for its speed, and so the same was left for the next."""
    pace, budget, prompt, loads = Pace(), 8192, 9984, 20
    computed = []
    for _ in range(6):
        count = min(meeting(pace, first_loaded=prompt // CHUNK, stop_token=prompt), budget)
        left = prompt - count
        came = min(left, loads * count)
        pace.add(computed_tokens=count, loaded_tokens=came, is_bound=came == left)
        computed.append(count)
    ideal = prompt / (loads + 1)
    assert computed[0] == prompt // 2
    assert all(count <= 2.5 * ideal for count in computed[4:])


def test_a_step_is_safe_while_loading_alone_would_take_longer() -> None:
    def safe(pace: Pace) -> int:
        return pace.safe_token(64, first_loaded=9, chunk_tokens=CHUNK)

    assert safe(Pace()) == 64 + 512 // 2
    steady = Pace()
    for _ in range(8):
        steady.add(computed_tokens=512, loaded_tokens=2048, is_bound=False)
    assert safe(steady) == 64 + int(512 / 4 / 1.5)
    steady.add(computed_tokens=512, loaded_tokens=4 * 2048, is_bound=False)
    assert safe(steady) == 64 + int(512 / 16 / 4)
    assert steady.safe_token(640, first_loaded=9, chunk_tokens=CHUNK) == 640


@given(
    loaded_for_one=st.floats(0, 100),
    position=st.integers(0, STOP - 1),
    first_loaded=st.integers(0, 10),
)
def test_meeting_is_never_behind_what_is_loaded(
    loaded_for_one: float, position: int, first_loaded: int
) -> None:
    if first_loaded * CHUNK > position and first_loaded < 10:
        assert position <= meeting(pace_of(loaded_for_one), position, first_loaded)
        assert meeting(pace_of(loaded_for_one), position, first_loaded) <= first_loaded * CHUNK
