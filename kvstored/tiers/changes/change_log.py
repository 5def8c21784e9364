"""What came and went in one namespace: a bounded list with sequence numbers. Pure."""

from dataclasses import dataclass
from enum import Enum

from kvstored_contract.limits import KEY_BYTES

CHANGES_MAX = 32_768
"""Changes that are remembered."""
NOTES_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of notes that are remembered."""
PAGE_BYTES = 4096
"""Of memory, at least."""
CHANGES_PER_ANSWER_MAX = 2048
ANSWER_NOTES_BYTES_MAX = 4 * 1024 * 1024
"""Both bound one answer, which has to fit into a message."""


class ChangeKind(Enum):
    """What happened to a chunk; values are those of the protobuf enum."""

    STORED = 1
    REMOVED = 2


@dataclass(frozen=True, slots=True)
class Change:
    """A chunk that came, with what was said of it, or went."""

    kind: ChangeKind
    key: bytes
    note: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSpan:
    """Consecutive changes up to ``last_sequence``, and what is not among them.

    ``is_lost``: some after the asker's place are not known any more. ``has_more``: others
    follow.
    """

    changes: tuple[Change, ...]
    last_sequence: int
    is_lost: bool
    has_more: bool


class ChangeLog:
    """The last changes of one namespace. Not thread-safe.

    Sequence numbers begin at 1 and have no gaps, but for ``lose``. Invariant: the changes that
    are remembered are the last ones, so that a follower who takes them for everything
    believes of no chunk that is gone that it is there.

    Its memory is taken when it is made, but for notes: a daemon that runs grows no more by what it
    remembers.
    """

    def __init__(self) -> None:
        self._keys = memoryview(_taken(CHANGES_MAX * KEY_BYTES))
        self._kinds = _taken(CHANGES_MAX)
        self._notes: dict[int, bytes] = {}
        """By sequence number, where there is one."""
        self._count = 0
        self._last = 0
        self._notes_bytes = 0

    @property
    def notes_bytes(self) -> int:
        """Bytes of all notes that are remembered."""
        return self._notes_bytes

    def add(self, change: Change) -> None:
        """Remembers what happened now, and forgets what is too long ago."""
        if self._count == CHANGES_MAX:
            self._forget_oldest()
        self._last += 1
        self._count += 1
        place = self._last % CHANGES_MAX
        self._keys[place * KEY_BYTES : (place + 1) * KEY_BYTES] = change.key
        self._kinds[place] = change.kind.value
        if change.note:
            self._notes[self._last] = change.note
            self._notes_bytes += len(change.note)
        while self._notes_bytes > NOTES_BYTES_MAX:
            self._forget_oldest()

    def lose(self) -> None:
        """Something happened that nobody can tell chunk by chunk: everybody has to start over."""
        self._count = self._notes_bytes = 0
        self._notes.clear()
        self._last += 1

    def after(self, sequence: int | None) -> ChangeSpan:
        """What is known of the changes after ``sequence``.

        None is the place of one who knows nothing, or belongs to another log.
        """
        oldest = self._last - self._count + 1
        is_lost = sequence is None or not oldest <= sequence + 1 <= self._last + 1
        skipped = 0 if sequence is None or is_lost else sequence + 1 - oldest
        changes: list[Change] = []
        notes_bytes = 0
        for number in range(oldest + skipped, self._last + 1)[:CHANGES_PER_ANSWER_MAX]:
            change = self._change(number)
            notes_bytes += len(change.note)
            if notes_bytes > ANSWER_NOTES_BYTES_MAX:
                break
            changes.append(change)
        last = oldest - 1 + skipped + len(changes)
        return ChangeSpan(
            changes=tuple(changes),
            last_sequence=last,
            is_lost=is_lost,
            has_more=last < self._last,
        )

    def _change(self, number: int) -> Change:
        place = number % CHANGES_MAX
        key = bytes(self._keys[place * KEY_BYTES : (place + 1) * KEY_BYTES])
        return Change(ChangeKind(self._kinds[place]), key, self._notes.get(number, b""))

    def _forget_oldest(self) -> None:
        self._notes_bytes -= len(self._notes.pop(self._last - self._count + 1, b""))
        self._count -= 1


def _taken(byte_count: int) -> bytearray:
    """Memory that the system has given: of zeros alone it gives a page when it is written to."""
    memory = bytearray(byte_count)
    memory[::PAGE_BYTES] = b"\xff" * len(range(0, byte_count, PAGE_BYTES))
    return memory
