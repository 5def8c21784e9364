"""What the workload says of its own doings, in the same log as its writes.

A mark is one write to a file of marks: a word, a chunk, a version; or what one sequence may be
from then on. The start of an operation is marked before it begins and its answer after it was
given, so that between the two nothing is promised.
"""

import json
import os
from dataclasses import dataclass, field
from enum import StrEnum

from tests.faults.sequence_model import Possible, SequenceModel

MARKS_FILE = "marks"


class MarkKind(StrEnum):
    """What happened to a chunk."""

    PUT = "put"
    """A put is about to begin."""
    DURABLE = "durable"
    """A put was acknowledged as durable."""
    DELETE = "delete"
    """A deletion or an eviction is about to begin."""
    DELETED = "deleted"
    """A deletion or an eviction was acknowledged."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark; the version counts for puts only."""

    kind: MarkKind
    number: int
    version: int = 0

    def write(self, descriptor: int) -> None:
        """Brings the mark into the log."""
        os.write(descriptor, self.encode())

    def encode(self) -> bytes:
        """The mark as one line."""
        return f"{self.kind} {self.number} {self.version}\n".encode()

    @classmethod
    def parse(cls, line: bytes) -> "Mark":
        """The mark in a write."""
        kind, number, version = line.decode().split()
        return cls(MarkKind(kind), int(number), int(version))

    @property
    def is_answer(self) -> bool:
        """Whether the mark makes a promise."""
        return self.kind in {MarkKind.DURABLE, MarkKind.DELETED}


class SequenceVerb(StrEnum):
    """What was done to a sequence."""

    CREATE = "create"
    APPEND = "append"
    FLUSH = "flush"
    TRUNCATE = "truncate"
    FORK = "fork"
    DELETE = "delete"
    END_SESSION = "end-session"
    START = "start"
    """What a start has found of it."""


@dataclass(frozen=True, slots=True)
class SequenceMark:
    """What a sequence may be, from a moment before ``verb`` on, or (an answer) from one after it.

    An answer to a flush leaves only what holds the acknowledged tokens.
    """

    verb: SequenceVerb
    name: str
    possible: Possible
    is_answer: bool

    def write(self, descriptor: int) -> None:
        """Brings the mark into the log."""
        os.write(descriptor, self.encode())

    def encode(self) -> bytes:
        """The mark as one line, whose first word is that of no chunk's mark."""
        possible = [None if model is None else model.encode() for model in self.possible]
        fields = json.dumps([self.name, self.is_answer, possible], separators=(",", ":"))
        return f"sequence-{self.verb} {fields}\n".encode()

    @classmethod
    def parse(cls, line: bytes) -> "SequenceMark":
        """The mark in a write."""
        word, fields = line.decode().split(maxsplit=1)
        name, is_answer, encoded = json.loads(fields)
        possible = tuple(None if one is None else SequenceModel.decode(one) for one in encoded)
        return cls(SequenceVerb(word.removeprefix("sequence-")), name, possible, is_answer)


AnyMark = Mark | SequenceMark


def parse_mark(line: bytes) -> AnyMark:
    """The mark in a write, of either kind."""
    return (SequenceMark if line.startswith(b"sequence-") else Mark).parse(line)


@dataclass(slots=True)
class Promise:
    """What must and what may be read of one chunk.

    ``required`` is the version that must be there. ``allowed`` are those that may be
    served. ``put_since`` are versions that were put since an unfinished deletion began.
    """

    required: int | None = None
    allowed: frozenset[int] = frozenset()
    is_leaving: bool = False
    put_since: frozenset[int] = frozenset()
    is_certain: bool = False
    """No deletion has been under way since the last put began."""
    was_durable: bool = False
    """A put was acknowledged, whatever came of the chunk then."""


@dataclass(slots=True)
class Ledger:
    """The promises that hold at one moment of the log."""

    promises: dict[int, Promise] = field(default_factory=dict)
    sequences: dict[str, Possible] = field(default_factory=dict)
    answer_count: int = 0

    def take(self, mark: AnyMark) -> None:
        """Goes on to the moment behind a mark."""
        if isinstance(mark, SequenceMark):
            self.answer_count += mark.is_answer
            self.sequences[mark.name] = mark.possible
        else:
            self._take_chunk(mark)

    def _take_chunk(self, mark: Mark) -> None:
        promise = self.promises.setdefault(mark.number, Promise())
        self.answer_count += mark.is_answer
        match mark.kind:
            case MarkKind.PUT:
                promise.allowed |= {mark.version}
                promise.put_since |= {mark.version}
                promise.is_certain = not promise.is_leaving
            case MarkKind.DURABLE:
                promise.was_durable = True
                if promise.is_certain:
                    promise.required = mark.version
                    promise.allowed = frozenset({mark.version})
            case MarkKind.DELETE:
                if not promise.is_leaving:
                    promise.put_since = frozenset()
                promise.is_leaving = True
                promise.is_certain = False
                promise.required = None
            case MarkKind.DELETED:
                if promise.is_leaving:
                    promise.allowed = promise.put_since
                promise.is_leaving = False
