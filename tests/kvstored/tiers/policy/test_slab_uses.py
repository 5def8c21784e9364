"""Which slab is emptied for another size class."""

from kvstored.tiers.policy.slab_uses import SlabUses

SMALL, LARGE = 1, 2
PLACES = 10


def full(uses: SlabUses, slab: int, *, class_bytes: int = SMALL, places: int = PLACES) -> None:
    """Takes every place of a slab, by frames that may go."""
    for place in range(places):
        uses.take(slab, place, class_bytes=class_bytes, place_count=places)
        uses.loosen(slab)


def test_uses_are_told_in_their_order() -> None:
    uses = SlabUses(2)
    full(uses, 1)
    assert 0 < uses.last_use(1, 0) < uses.last_use(1, 1)
    uses.touch(1, 0)
    assert uses.last_use(1, 0) > uses.last_use(1, PLACES - 1)


def test_the_slab_that_was_not_used_for_longest_is_first() -> None:
    uses = SlabUses(3)
    for slab in (2, 0, 1):
        full(uses, slab)
    assert list(uses.to_empty(LARGE)) == [2, 0, 1]
    for place in range(PLACES):
        uses.touch(2, place)
    assert list(uses.to_empty(LARGE)) == [0, 1, 2]


def test_one_frame_in_use_does_not_keep_its_slab_and_two_of_ten_do() -> None:
    uses = SlabUses(2)
    full(uses, 0)
    full(uses, 1)
    uses.touch(0, 3)
    assert list(uses.to_empty(LARGE)) == [0, 1]
    uses.touch(0, 4)
    assert list(uses.to_empty(LARGE)) == [1, 0]


def test_only_slabs_that_are_older_than_what_the_class_has() -> None:
    uses = SlabUses(4)
    full(uses, 0)
    full(uses, 1)
    full(uses, 2, class_bytes=LARGE, places=1)
    full(uses, 3)
    before = uses.last_use(2, 0)
    assert list(uses.to_empty(LARGE, before=before)) == [0, 1]
    for place in range(PLACES):
        uses.touch(0, place)
    # What was known of slab 0 is too early now, which is found out.
    assert list(uses.to_empty(LARGE, before=before)) == [1]
    uses.touch(2, 0)
    assert list(uses.to_empty(LARGE, before=uses.last_use(2, 0))) == [1, 3, 0]


def test_slabs_with_a_frame_that_may_not_go_and_those_without_frames_are_left_out() -> None:
    uses = SlabUses(3)
    full(uses, 0)
    full(uses, 1)
    uses.hold(0)
    assert list(uses.to_empty(LARGE)) == [1]
    uses.loosen(0)
    for _ in range(PLACES):
        uses.hold(1)
        uses.free(1)
    assert list(uses.to_empty(LARGE)) == [0]


def test_slabs_of_the_class_itself_are_left_out() -> None:
    uses = SlabUses(2)
    full(uses, 0)
    full(uses, 1, class_bytes=LARGE, places=3)
    assert list(uses.to_empty(LARGE)) == [0]
    assert list(uses.to_empty(SMALL)) == [1]


def test_a_slab_that_was_taken_a_moment_ago_is_not_old_for_its_free_places() -> None:
    uses = SlabUses(3)
    full(uses, 0)
    uses.take(1, 0, class_bytes=LARGE, place_count=4)
    uses.loosen(1)
    full(uses, 2, class_bytes=3)
    assert list(uses.to_empty(3)) == [0, 1]


def test_a_slab_is_not_sorted_again_before_the_time_that_it_was_too_late_for() -> None:
    uses = SlabUses(2)
    full(uses, 0)
    full(uses, 1, class_bytes=LARGE, places=1)
    before = uses.last_use(1, 0)
    for place in range(PLACES):
        uses.touch(0, place)
    assert list(uses.to_empty(LARGE, before=before)) == []
    uses._times[0][:] = 0
    assert list(uses.to_empty(LARGE, before=before)) == []


def test_the_slab_of_others_with_the_fewest_frames_that_may_not_go_is_first() -> None:
    uses = SlabUses(4)
    assert uses.nearly_loose(LARGE) == []
    assert uses.is_empty(0)
    for slab in range(3):
        full(uses, slab)
        uses.hold(slab)
    uses.hold(0)
    full(uses, 3, class_bytes=LARGE, places=2)
    assert not uses.is_empty(0)
    assert uses.nearly_loose(LARGE) == [1, 2, 0]
    assert uses.nearly_loose(SMALL) == [3]


def test_slabs_with_open_frames_come_after_those_with_many_that_may_not_go() -> None:
    uses = SlabUses(2)
    for slab in range(2):
        full(uses, slab)
    for _ in range(PLACES):
        uses.hold(1)
    uses.hold(0)
    uses.begin_open(0)
    assert uses.nearly_loose(LARGE) == [1, 0]
    uses.end_open(0)
    assert uses.nearly_loose(LARGE) == [0, 1]


def test_frames_are_counted_by_slab_and_class() -> None:
    uses = SlabUses(3)
    full(uses, 0)
    uses.take(2, 1, class_bytes=LARGE, place_count=5)
    assert uses.frame_counts() == [(SMALL, PLACES), (LARGE, 1)]
    uses.free(2)
    assert uses.frame_counts() == [(SMALL, PLACES)]
