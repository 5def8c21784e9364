import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.restore.testing.oracle import Meeting, best_meeting, elapsed_s

durations = st.lists(st.floats(0, 10), max_size=20)


def test_both_sides_end_together() -> None:
    computed_at_s = elapsed_s([1.0, 2.0, 3.0, 4.0])
    loaded_at_s = elapsed_s([1.0] * 4, latency_s=0.5)
    assert loaded_at_s == [0.0, 1.5, 2.5, 3.5, 4.5]
    assert best_meeting(computed_at_s, loaded_at_s) == Meeting(computed_chunks=2, duration_s=3.0)


@given(durations, st.data())
def test_no_meeting_point_is_better(computed: list[float], data: st.DataObject) -> None:
    count = len(computed)
    loaded = data.draw(st.lists(st.floats(0, 10), min_size=count, max_size=count))
    computed_at_s, loaded_at_s = elapsed_s(computed), elapsed_s(loaded)
    meeting = best_meeting(computed_at_s, loaded_at_s)
    at = meeting.computed_chunks
    assert meeting.duration_s == max(computed_at_s[at], loaded_at_s[count - at])
    for point in range(count + 1):
        assert meeting.duration_s <= max(computed_at_s[point], loaded_at_s[count - point])


@pytest.mark.parametrize(("computed", "loaded"), [([], []), ([0.0, 1.0], [0.0])])
def test_times_of_other_chunks_are_refused(computed: list[float], loaded: list[float]) -> None:
    with pytest.raises(ValueError, match="not those of the same chunks"):
        best_meeting(computed, loaded)
