"""Session tables of tests, which name only the callbacks that they look at."""

from collections.abc import Callable, Iterable

from kvstored.format.identity import ChunkId
from kvstored.server.session_table import SessionLimits, SessionTable
from kvstored.store.read.read_stream import ReadStream


def _nothing(_: object) -> None:
    pass


def session_table(
    limits: SessionLimits,
    *,
    unpin: Callable[[Iterable[ChunkId]], None] = _nothing,
    give_up: Callable[[ReadStream], None] = _nothing,
    end: Callable[[int], None] = _nothing,
) -> SessionTable:
    """A table whose callbacks do nothing, but for those that are given."""
    return SessionTable(limits, unpin=unpin, cancel=_nothing, give_up=give_up, end=end)
