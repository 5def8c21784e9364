"""How an object of LMCache becomes a chunk."""

import pytest

from engine_adapters.lmcache.stored_object import OBJECT_BYTES_MAX, key_of, layout_of
from kvstored_client import LayoutError
from kvstored_contract.layout import align_up
from kvstored_contract.limits import TOKEN_BYTES_MAX


@pytest.mark.parametrize(
    "byte_count",
    [1, 4095, 4096, TOKEN_BYTES_MAX, TOKEN_BYTES_MAX + 1, 3 * TOKEN_BYTES_MAX, OBJECT_BYTES_MAX],
)
def test_an_object_lies_in_a_row(byte_count: int) -> None:
    layout = layout_of(byte_count)
    assert layout.chunk_bytes() == byte_count
    offsets = [layer * layout.layer_stride for layer in range(layout.layer_count)]
    lengths = [layout.slice_bytes(layer) for layer in range(layout.layer_count)]
    ends = [offset + length for offset, length in zip(offsets, lengths, strict=True)]
    assert ends[:-1] == offsets[1:]
    assert layout.layer_stride == align_up(min(byte_count, TOKEN_BYTES_MAX))


@pytest.mark.parametrize("byte_count", [0, OBJECT_BYTES_MAX + 1])
def test_other_sizes_have_no_layout(byte_count: int) -> None:
    with pytest.raises(LayoutError):
        layout_of(byte_count)


def test_each_size_has_a_layout_of_its_own() -> None:
    assert len({layout_of(size).layout_id for size in (100, 101, 4096, 8192)}) == 4


def test_all_that_names_an_object_is_in_its_key() -> None:
    keys = {
        key_of(name, namespace=namespace, weights=weights)
        for name in ("m@0@0@aa", "m@0@0@ab")
        for namespace in ("one", "two")
        for weights in ("", "revision 1")
    }
    assert len(keys) == 8
    assert {len(key) for key in keys} == {32}
