"""What a store serves against what it has promised.

Fails when `broken_promises` asks only for what must be there (seen: all but the first), or
takes slices of two versions for a chunk (seen: a_mixture_...).
"""

import pytest

from tests.faults.power.chunks import layout_of, payload_of
from tests.faults.power.marks import Promise
from tests.faults.power.recovery import broken_promises

NUMBER = 4


def parts(*versions: int | None) -> list[bytes | None]:
    """Slices of the chunk, each of its own version."""
    layout = layout_of(NUMBER)
    return [
        None
        if version is None
        else payload_of(NUMBER, version)[layer * layout.layer_stride :][: layout.slice_bytes(layer)]
        for layer, version in enumerate(versions)
    ]


def test_a_promised_chunk_is_there() -> None:
    promises = {NUMBER: Promise(required=1, allowed=frozenset({1}))}
    assert broken_promises({NUMBER: parts(1, 1)}, promises) == []
    assert broken_promises({NUMBER: parts(None, 1)}, promises) == ["chunk 4 version 1 is lost"]


@pytest.mark.parametrize("served", [(2, 2), (2, None), (1, 2)], ids=["stale", "part", "mixture"])
def test_a_mixture_or_another_version_is_never_served(served: tuple[int | None, ...]) -> None:
    promises = {NUMBER: Promise(allowed=frozenset({1}))}
    assert len(broken_promises({NUMBER: parts(*served)}, promises)) == 1


def test_a_deleted_or_unknown_chunk_stays_away() -> None:
    assert len(broken_promises({NUMBER: parts(1, 1)}, {NUMBER: Promise()})) == 1
    assert len(broken_promises({NUMBER: parts(1, 1)}, {})) == 1
    assert broken_promises({NUMBER: parts(None, None)}, {}) == []
