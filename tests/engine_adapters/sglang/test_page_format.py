"""How a page of SGLang's host pool becomes a chunk."""

from dataclasses import replace

import pytest

from engine_adapters.sglang.page_format import PageError, values_dtype
from tests.engine_adapters.sglang.formats import FRAGMENTS, make_format, of_rank


def test_a_fragment_is_a_slice() -> None:
    found = make_format()
    assert found.layout.chunk_tokens == 16
    sizes = [found.layout.slice_bytes(layer) for layer in range(found.layout.layer_count)]
    assert sizes == list(FRAGMENTS) == list(found.fragment_bytes)


def test_whatever_makes_pages_differ_makes_another_layout() -> None:
    formats = [
        make_format(),
        make_format(weights="revision 2"),
        make_format(model="other"),
        make_format(dtype="float16"),
        make_format(pool="MHA page_head"),
        make_format(page_tokens=8),
        make_format(fragments=(16 * 100, 16 * 61)),
        of_rank(tensor_rank=1, tensor_size=2),
        of_rank(tensor_size=2),
        of_rank(first_layer=4),
        of_rank(layer_count=5),
        of_rank(context_rank=1, context_size=2),
        of_rank(context_size=2),
    ]
    assert len({found.layout.layout_id for found in formats}) == len(formats)
    assert len({found.keys_of(["ab"], namespace="n")[0] for found in formats}) == len(formats)


def test_pages_of_two_8_bit_dtypes_had_one_name() -> None:
    """Bug: SGLang's pools keep both as uint8, so a server read the one as the other."""
    assert values_dtype("bfloat16", "") == "bfloat16"
    assert values_dtype("float16", "fp8_e5m2") == "float16"
    with pytest.raises(PageError, match="set kv_dtype"):
        values_dtype("uint8", "")
    found = {values_dtype("uint8", each) for each in ("fp8_e5m2", "fp8_e4m3")}
    assert len({make_format(dtype=each).layout.layout_id for each in found}) == 2


def test_keys_belong_to_a_name_and_a_namespace() -> None:
    found = make_format()
    keys = {*found.keys_of(["aa", "ab"], namespace="n"), *found.keys_of(["aa"], namespace="m")}
    keys.update(replace(found, generation="1").keys_of(["aa"], namespace="n"))
    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}


def test_a_fragment_has_whole_tokens() -> None:
    with pytest.raises(PageError, match="16 tokens"):
        make_format(fragments=(16 * 100, 17))
