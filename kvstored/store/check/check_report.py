"""What an offline check found."""

from dataclasses import dataclass
from enum import Enum

PROBLEMS_MAX = 1000
"""Problems that a report describes; the others are counted."""


class ProblemKind(Enum):
    """What a problem is about."""

    SUPERBLOCK = "superblock"
    INDEX_META = "index meta"
    INDEX_TREE = "index tree"
    INDEX_ENTRY = "index entry"
    EXTENT = "extent"
    SLAB_HEADER = "slab header"
    EXTENT_HEADER = "extent header"
    SLICE = "slice"
    DEVICE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it should be: ``where`` names the place, ``what`` says it."""

    kind: ProblemKind
    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Result of a check.

    ``chunk_count`` counts the chunks in service that were looked at, ``verified_bytes``
    the payload that matched its checksum. ``problems`` holds the first ``PROBLEMS_MAX``
    of ``problem_count``.
    """

    chunk_count: int
    verified_bytes: int
    problem_count: int
    problems: tuple[Problem, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found."""
        return self.problem_count == 0


class ProblemList:
    """Collects problems up to the limit and counts all of them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.count = 0

    def add(self, problem: Problem) -> None:
        """Adds one problem."""
        self.count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
