"""A change of an engine's queue, and the answer. Pure values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvstored_contract.layout import StateLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEntry:
    """A request that waits at ``place``, the smallest first, for the states of a sequence.

    With ``keys`` (32 bytes each, in the order of its tokens) these are chunks of the layout
    ``layout_id``; without any, those that the sequence of this name has now.
    """

    name: str
    place: int
    keys: tuple[bytes, ...] = ()
    layout_id: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """What changed since ``previous_version``: who left first.

    With 0 ``entered`` is the whole queue. ``layouts`` are some by their ids: one that was just
    registered need not be in the index yet.
    """

    version: int
    previous_version: int
    entered: tuple[NamedEntry, ...] = ()
    left: tuple[str, ...] = ()
    layouts: Mapping[bytes, StateLayout] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    """Whether a change was taken, the version that is known now, and names without effect."""

    is_taken: bool
    version: int
    ignored: tuple[str, ...] = ()
