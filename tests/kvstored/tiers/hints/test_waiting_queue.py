"""The queues of several engines as one, and what the tiers hear of them."""

import pytest

from kvstored.format.identity import ChunkId
from kvstored.tiers.hints.waiting_queue import HintedTier, Places, WaitingQueue
from kvstored.tiers.policy.pauses import PAUSE_ITEMS
from kvstored.tiers.policy.prefetch_plan import WaitingSequence
from kvstored.turnstile import TURNSTILE

NAMESPACE, OTHER = b"n" * 16, b"o" * 16


def chunk(letter: str, namespace_id: bytes = NAMESPACE) -> ChunkId:
    return ChunkId(namespace_id, letter.encode() * 32)


class Tiers:
    """Two tiers that remember what they heard; the first protects 4 chunks of a namespace."""

    def __init__(self) -> None:
        self.places: list[dict[ChunkId, int]] = [{}, {}]
        self.queue = WaitingQueue(
            (
                HintedTier(lambda _: 40, lambda places: self.hear(0, places)),
                HintedTier(lambda _: 1000, lambda places: self.hear(1, places)),
            )
        )

    def hear(self, tier: int, places: Places) -> None:
        for key, place in places.items():
            if place is None:
                self.places[tier].pop(key, None)
            else:
                self.places[tier][key] = place

    def letters(self, tier: int, namespace_id: bytes = NAMESPACE) -> str:
        """Keys by their places."""
        known = [one for one in self.places[tier] if one.namespace_id == namespace_id]
        in_order = sorted(known, key=lambda one: (self.places[tier][one], one.key))
        return "".join(one.key[:1].decode() for one in in_order)

    def change(
        self,
        entered: dict[str, tuple[int, str]],
        left: tuple[str, ...] = (),
        *,
        session: int = 1,
        versions: tuple[int, int] | None = None,
        namespace_id: bytes = NAMESPACE,
    ) -> bool:
        known = self.queue.version(session)
        return self.queue.change(
            session,
            namespace_id,
            versions=versions or (known + 1, known),
            entered={
                name: (
                    place,
                    WaitingSequence(
                        chunks=[chunk(letter, namespace_id) for letter in letters], chunk_bytes=10
                    ),
                )
                for name, (place, letters) in entered.items()
            },
            left=left,
        ).is_taken


@pytest.fixture
def tiers() -> Tiers:
    return Tiers()


def test_each_tier_hears_of_what_fits_it(tiers: Tiers) -> None:
    tiers.change({"x": (1, "ab"), "y": (2, "cd"), "z": (3, "ef")})
    assert (tiers.letters(0), tiers.letters(1)) == ("abcd", "abcdef")
    tiers.change({}, ("x",))
    assert (tiers.letters(0), tiers.letters(1)) == ("cdef", "cdef")
    assert [one.name.name for one in tiers.queue.head(0)] == ["y", "z"]
    assert len(tiers.queue) == 2


def test_an_older_change_does_nothing(tiers: Tiers) -> None:
    tiers.change({"x": (1, "a")}, versions=(5, 0))
    assert not tiers.change({"y": (2, "b")}, versions=(4, 0))
    assert not tiers.change({"y": (2, "b")}, versions=(7, 6))
    assert tiers.letters(1) == "a"
    assert tiers.queue.version(1) == 5


def test_a_whole_queue_replaces_the_one_before(tiers: Tiers) -> None:
    tiers.change({"x": (1, "a"), "y": (2, "b")})
    tiers.change({"y": (1, "bc")}, versions=(9, 0))
    assert tiers.letters(1) == "bc"
    assert len(tiers.queue) == 1


def test_the_end_of_a_session_ends_its_queue(tiers: Tiers) -> None:
    tiers.change({"x": (1, "a")})
    tiers.change({"x": (1, "ab")}, session=2)
    tiers.queue.end_session(1)
    assert tiers.letters(1) == "ab"
    tiers.queue.end_session(2)
    tiers.queue.end_session(3)
    assert (tiers.letters(0), tiers.letters(1), len(tiers.queue)) == ("", "", 0)
    assert tiers.queue.head(0) == []


def test_engines_are_merged_by_position(tiers: Tiers) -> None:
    tiers.change({"x": (1000, "a"), "y": (1010, "b")})
    tiers.change({"x": (5, "c"), "y": (25, "d")}, session=2)
    assert tiers.letters(1) == "acbd"


def test_a_namespace_protects_its_own_part_only(tiers: Tiers) -> None:
    """Who hints everything takes nothing of what another may protect."""
    tiers.change({str(number): (number, f"{number}") for number in range(9)})
    tiers.change({"x": (1, "abcd")}, session=2, namespace_id=OTHER)
    assert tiers.letters(0) == "0123"
    assert tiers.letters(0, OTHER) == "abcd"


def test_names_for_which_there_is_no_room_are_told(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvstored.tiers.hints import session_queue

    monkeypatch.setattr(session_queue, "HINTED_CHUNKS_PER_SESSION_MAX", 3)
    sequence = WaitingSequence(chunks=[chunk("a"), chunk("b")], chunk_bytes=10)
    answer = tiers.queue.change(
        1, NAMESPACE, versions=(1, 0), entered={"x": (1, sequence), "y": (2, sequence)}, left=()
    )
    assert answer.ignored == ("y",)
    assert len(tiers.queue) == 1


@pytest.mark.parametrize("in_one_name", [True, False])
def test_a_hint_of_many_chunks_went_through_in_one_go(
    monkeypatch: pytest.MonkeyPatch, in_one_name: bool
) -> None:
    """Bug: 262,144 chunks entered, moved and left without a turn for anybody else."""
    turns = 0

    def has_work() -> bool:
        nonlocal turns
        turns += 1
        return False

    monkeypatch.setattr(TURNSTILE, "_has_work", has_work)
    queue = WaitingQueue((HintedTier(lambda _: 10**9, lambda _: None),))
    count = 16 * PAUSE_ITEMS
    chunks = [ChunkId(NAMESPACE, number.to_bytes(32, "big")) for number in range(count)]
    parts = [chunks] if in_one_name else [chunks[first : first + 8] for first in range(0, count, 8)]
    for version, first_place in enumerate((0, 10), 1):
        turns = 0
        queue.change(
            1,
            NAMESPACE,
            versions=(version, version - 1),
            entered={
                f"{number}": (first_place + number, WaitingSequence(chunks=part, chunk_bytes=10))
                for number, part in enumerate(parts)
            },
            left=(),
        )
        # Its places, their chunks, and what changed.
        assert turns >= 3 * 16 - 1
    turns = 0
    queue.end_session(1)
    assert turns >= 3 * 16 - 1
