import struct
from functools import partial

import pytest
from hypothesis import given

from kvstored.format import layout_record
from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.kvstored.format.damage import (
    check_every_bit_is_vouched_for,
    check_every_truncation_is_refused,
)
from tests.kvstored.format.strategies import layouts

LAYOUT = StateLayout(model="m", dtype="float32", layers=(LayerState(StateKind.KV, 64),) * 2)


def sealed(layout_id: bytes, version: int, message: bytes) -> bytes:
    body = struct.pack("<H", version) + message
    return body + struct.pack("<Q", checksum(layout_id + body))


@given(layouts)
def test_round_trip(layout: StateLayout) -> None:
    value = layout_record.encode(layout)
    assert layout_record.decode(layout.layout_id, value) == layout


def test_every_bit_is_vouched_for() -> None:
    decode = partial(layout_record.decode, LAYOUT.layout_id)
    check_every_bit_is_vouched_for(layout_record.encode(LAYOUT), decode)


def test_truncations_are_refused() -> None:
    decode = partial(layout_record.decode, LAYOUT.layout_id)
    check_every_truncation_is_refused(layout_record.encode(LAYOUT), decode)


def test_other_version_is_named() -> None:
    value = sealed(LAYOUT.layout_id, 7, LAYOUT.to_proto().SerializeToString())
    with pytest.raises(FormatError, match="version 7, expected 1"):
        layout_record.decode(LAYOUT.layout_id, value)


@pytest.mark.parametrize("message", [b"\xff\xff", b""], ids=["no protobuf", "no layout"])
def test_sealed_nonsense_is_refused(message: bytes) -> None:
    with pytest.raises(FormatError, match="layout record: "):
        layout_record.decode(LAYOUT.layout_id, sealed(LAYOUT.layout_id, 1, message))


def test_a_layout_of_an_earlier_release_stays_readable() -> None:
    """That accepted layouts without a fingerprint, and whatever dtype they named."""
    layers = (LayerState(StateKind.KV, 16),)
    layout = StateLayout(model="", dtype="whatever", layers=layers, is_stored=True)
    assert layout_record.decode(layout.layout_id, layout_record.encode(layout)) == layout


def test_layout_under_another_id_is_refused() -> None:
    other_id = b"o" * 32
    value = sealed(other_id, 1, LAYOUT.to_proto().SerializeToString())
    with pytest.raises(FormatError, match="another layout's id"):
        layout_record.decode(other_id, value)
