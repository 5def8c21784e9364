"""When an index is an older copy of its set's."""

import pytest

from kvstored.store.index.meta import IndexMeta

SET_ID = b"s" * 16


@pytest.mark.parametrize(
    ("set_id", "epoch", "is_outdated"),
    [
        (SET_ID, 6, True),
        (SET_ID, 5, False),
        # A start that was cut short before it wrote to the devices.
        (SET_ID, 4, False),
        # Refused as such, and never set aside.
        (b"o" * 16, 6, False),
    ],
)
@pytest.mark.parametrize("clean", [False, True])
def test_an_index_behind_its_devices_is_outdated(
    set_id: bytes, epoch: int, is_outdated: bool, clean: bool
) -> None:
    meta = IndexMeta(set_id=SET_ID, epoch=5, clean=clean)
    assert meta.is_outdated(set_id=set_id, epoch=epoch) is is_outdated
