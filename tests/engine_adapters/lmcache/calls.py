"""Calls of a connector as LMCache makes them, one after the other."""

import ctypes
import os
import select
from collections.abc import Sequence
from typing import Any

from engine_adapters.lmcache import Connector
from tests.support.waiting import PATIENCE_S


def view_of(data: bytes) -> memoryview:
    """Memory as LMCache hands it over: made by ctypes, with a format of its own."""
    return memoryview((ctypes.c_ubyte * len(data)).from_buffer(bytearray(data)))


def completed(connector: Connector, number: int) -> tuple[bool, list[bool]]:
    """Waits at the descriptor, as LMCache does, until the call is completed."""
    (readable, _, _) = select.select([connector.event_fd()], [], [], PATIENCE_S)
    assert readable
    ((told, ok, _, results),) = connector.drain_completions()
    assert told == number
    assert results is not None
    assert not select.select([connector.event_fd()], [], [], 0)[0]
    return ok, results


def stored(connector: Connector, objects: dict[str, bytes]) -> tuple[bool, list[bool]]:
    views = [view_of(data) for data in objects.values()]
    return completed(connector, connector.submit_batch_set(list(objects), views))


def loaded(connector: Connector, names: Sequence[str], size: int) -> list[bytes | None]:
    """The bytes of each object; None where it is a miss, with its memory untouched."""
    filler = os.urandom(size)
    views = [view_of(filler) for _ in names]
    ok, results = completed(connector, connector.submit_batch_get(list(names), views))
    assert ok is all(results)
    for view, is_loaded in zip(views, results, strict=True):
        assert is_loaded or bytes(view) == filler
    return [
        bytes(view) if is_loaded else None for view, is_loaded in zip(views, results, strict=True)
    ]


def found(connector: Connector, names: Sequence[str]) -> list[bool]:
    ok, results = completed(connector, connector.submit_batch_exists(list(names)))
    assert ok
    return results


def deleted(connector: Connector, names: Sequence[str]) -> Any:
    return completed(connector, connector.submit_batch_delete(list(names)))
