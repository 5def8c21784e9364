import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored_client.session.free_space import FreeSpace

PAGE = 4096


def test_first_fit_takes_the_lowest_free_stretch() -> None:
    space = FreeSpace(8 * PAGE)
    assert [space.allocate(PAGE + 1), space.allocate(1), space.allocate(PAGE)] == [
        0,
        2 * PAGE,
        3 * PAGE,
    ]
    space.release(0)
    assert space.allocate(2 * PAGE) == 0


def test_small_things_can_come_from_the_end() -> None:
    space = FreeSpace(8 * PAGE)
    assert space.allocate(1, from_end=True) == 7 * PAGE
    assert space.allocate(7 * PAGE) == 0
    assert space.allocate(1) is None


def test_released_neighbours_become_one_stretch() -> None:
    space = FreeSpace(3 * PAGE)
    offsets = [space.allocate(PAGE) for _ in range(3)]
    for offset in (0, 2 * PAGE, PAGE):
        assert offset in offsets
        space.release(offset)
    assert space.allocate(3 * PAGE) == 0


def test_a_capacity_below_one_page_holds_nothing() -> None:
    assert FreeSpace(PAGE - 1).allocate(1) is None
    assert FreeSpace(2 * PAGE - 1).free_bytes == PAGE


@pytest.mark.parametrize("byte_count", [0, -1])
def test_an_allocation_of_nothing_is_refused(byte_count: int) -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        FreeSpace(PAGE).allocate(byte_count)


def test_what_was_never_allocated_cannot_be_released() -> None:
    with pytest.raises(KeyError):
        FreeSpace(PAGE).release(0)


@given(st.data())
def test_regions_never_overlap_and_no_byte_is_lost(data: st.DataObject) -> None:
    pages = data.draw(st.integers(0, 24), label="pages")
    space = FreeSpace(pages * PAGE)
    used: dict[int, int] = {}
    for _ in range(data.draw(st.integers(0, 40), label="steps")):
        is_release = bool(used) and data.draw(st.booleans(), label="release")
        if is_release:
            page = data.draw(st.sampled_from(sorted(used)), label="page")
            space.release(page * PAGE)
            del used[page]
            continue
        size = data.draw(st.integers(1, 6), label="size")
        offset = space.allocate(size * PAGE, from_end=data.draw(st.booleans(), label="from_end"))
        free = set(range(pages)) - {
            page for first, count in used.items() for page in range(first, first + count)
        }
        if offset is None:
            assert not any(set(range(first, first + size)) <= free for first in free)
        else:
            first = offset // PAGE
            assert set(range(first, first + size)) <= free
            used[first] = size
    assert space.free_bytes == (pages - sum(used.values())) * PAGE


def test_the_reserve_is_for_boards_only() -> None:
    space = FreeSpace(8 * PAGE, reserved_bytes=2 * PAGE)
    assert space.allocate(7 * PAGE) is None
    assert space.allocate(6 * PAGE) == 0
    assert space.allocate(1) is None
    assert space.allocate(1, from_end=True) == 7 * PAGE
    assert space.allocate(1, from_end=True) == 6 * PAGE
    assert space.allocate(1, from_end=True) is None
