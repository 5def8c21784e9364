"""The model of the disks: what a cut may leave of writes, flushes and names.

Fails when `Disks._flush` settles all that is pending (seen: a_flush_covers_...), when
`Disks._flush_folder` does (seen: a_flush_of_a_folder_...), when `_renaming_sets` lets a
change come before an earlier one of its name (seen: changes_of_one_name_...), when
`Disks.image` takes the last pieces of a page (seen: five tests) or keeps what lies in a
folder that is not there (seen: what_lies_in_a_folder_...), and when a plan forgets what it
has (seen: a_plan_has_every_state_once_...).
"""

from tests.faults.power.disk import Disks, Pending
from tests.faults.power.log import Event, Flushed, Named, Written
from tests.faults.power.plan import Recording, plan_states

PAGE = 4096


def write(begin: int, end: int, page: int, byte: bytes, *, is_synced: bool = False) -> Written:
    return Written(
        begin=begin,
        end=end,
        path="file",
        offset=page * PAGE,
        data=byte * PAGE,
        is_synced=is_synced,
    )


def play(*events: Event, files: dict[str, bytes] | None = None) -> Disks:
    disks = Disks({"file": b"0" * 2 * PAGE} if files is None else files)
    for event in events:
        disks.begin(event)
        disks.end(event)
    return disks


def states(disks: Disks) -> set[str]:
    """Every state of the file: one letter a page."""
    pending = disks.pending()
    images = [disks.image(pending, choice) for choice in pending.all_choices()]
    return {bytes(image["file"])[::PAGE].decode() for image in images}


def names(disks: Disks) -> set[tuple[str, ...]]:
    """Every set of names that a cut may leave."""
    pending: Pending = disks.pending()
    return {tuple(sorted(disks.image(pending, choice))) for choice in pending.all_choices()}


def test_each_page_of_a_write_is_there_or_not() -> None:
    event = Written(
        begin=0, end=0, path="file", offset=0, data=b"a" * PAGE + b"b" * PAGE, is_synced=False
    )
    assert states(play(event)) == {"00", "a0", "0b", "ab"}


def test_writes_of_one_page_keep_their_order() -> None:
    assert states(play(write(0, 0, 0, b"a"), write(1, 1, 0, b"b"))) == {"00", "a0", "b0"}


def test_a_flush_covers_what_was_written_before_it_began() -> None:
    disks = play(write(0, 3, 0, b"a"), write(1, 1, 1, b"b"), Flushed(begin=2, end=4, path="file"))
    assert states(disks) == {"0b", "ab"}


def test_a_synchronous_write_covers_itself_only() -> None:
    disks = play(write(0, 0, 0, b"a"), write(1, 1, 1, b"b", is_synced=True))
    assert states(disks) == {"0b", "ab"}


def test_a_part_of_a_page_changes_that_part() -> None:
    event = Written(begin=0, end=0, path="file", offset=10, data=b"xy", is_synced=False)
    live = play(event).live_files()["file"]
    assert bytes(live[:13]) == b"0000000000xy0"


def test_a_file_is_as_long_as_what_is_on_media_of_it() -> None:
    disks = play(write(0, 0, 0, b"a"), write(1, 1, 2, b"c"), files={"file": b""})
    assert states(disks) == {"", "a", "\0\0c", "a\0c"}


def test_a_name_is_durable_with_its_folder_and_not_with_its_file() -> None:
    made = Named(begin=0, end=0, path="new")
    flushed = Flushed(begin=1, end=1, path="new")
    assert names(play(made, flushed, files={})) == {(), ("new",)}
    assert names(play(made, Flushed(begin=1, end=1, path=""), files={})) == {("new",)}


def test_a_rename_is_there_whole_and_not_before_its_source() -> None:
    made = Named(begin=0, end=0, path="old")
    moved = Named(begin=1, end=1, path="new", source="old")
    assert names(play(made, moved, files={})) == {(), ("old",), ("new",)}


def test_changes_of_one_name_keep_their_order() -> None:
    moved = Named(begin=0, end=0, path="new", source="old")
    made = Named(begin=1, end=1, path="old")
    disks = play(moved, made, files={"old": b"x"})
    pending = disks.pending()
    images = [disks.image(pending, choice) for choice in pending.all_choices()]
    assert images == [{"old": b"x"}, {"new": b"x"}, {"old": b"", "new": b"x"}]


def test_a_flush_of_a_folder_covers_names_that_were_there_before_it_began() -> None:
    made = Named(begin=0, end=2, path="new")
    assert names(play(made, Flushed(begin=1, end=3, path=""), files={})) == {(), ("new",)}


def test_what_lies_in_a_folder_needs_the_folder() -> None:
    folder = Named(begin=0, end=0, path="box", is_folder=True)
    made = Named(begin=1, end=1, path="box/new")
    assert names(play(folder, made, files={})) == {(), ("box/",), ("box/", "box/new")}


def test_a_plan_has_every_state_once_where_there_are_few() -> None:
    events: list[Event] = [write(number, number, number % 2, b"a") for number in range(4)]
    recording = Recording(files={"file": b"0" * 2 * PAGE}, events=events)
    planned = plan_states(recording, count=1000, seed=1)
    # Three values of two pages each.
    assert sum(map(len, planned.values())) == 9
    assert 1 <= sum(map(len, plan_states(recording, count=5, seed=1).values())) <= 5
