import hashlib
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from kvstored_contract.layout import (
    RAW,
    LayerState,
    LayoutError,
    Rotary,
    Shard,
    StateKind,
    StateLayout,
    align_up,
    hash_fields,
)
from kvstored_contract.limits import (
    CHUNK_TOKENS_MAX,
    CODEC_NAME_BYTES_MAX,
    LAYERS_MAX,
    LAYOUT_TEXT_BYTES_MAX,
    SHARDS_MAX,
    TOKEN_BYTES_MAX,
)
from kvstored_protos.v1 import common_pb2
from tests.kvstored.format.strategies import layouts
from tests.support.untraced import UNTRACED

KV = LayerState(StateKind.KV, 100)
HIDDEN = LayerState(StateKind.HIDDEN, 64)
NONE = LayerState(StateKind.NONE, 0)
LAYOUT = StateLayout(model="m", dtype="float32", layers=(KV, NONE, HIDDEN), chunk_tokens=64)


@UNTRACED
@given(layouts)
def test_round_trip_through_protobuf(layout: StateLayout) -> None:
    message = common_pb2.StateLayout.FromString(layout.to_proto().SerializeToString())
    assert StateLayout.from_proto(message) == layout
    assert StateLayout.from_proto(message).layout_id == layout.layout_id


@UNTRACED
@given(layouts, layouts)
def test_different_layouts_have_different_ids(first: StateLayout, second: StateLayout) -> None:
    assert (first.layout_id == second.layout_id) == (first == second)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "n"},
        {"dtype": "bfloat16"},
        {"layers": (KV, NONE, replace(HIDDEN, token_bytes=65))},
        {"layers": (KV, NONE, replace(HIDDEN, kind=StateKind.KV))},
        {"layers": (NONE, KV, HIDDEN)},
        {"chunk_tokens": 32},
        {"rotary": Rotary.ROTATED},
        {"shard": Shard(tensor_size=2)},
        {"shard": Shard(tensor_rank=1, tensor_size=2)},
        {"shard": Shard(pipeline_first_layer=1)},
        {"shard": Shard(pipeline_layer_count=1)},
        {"codec": "zstd"},
    ],
)
def test_every_property_changes_the_id(change: dict[str, Any]) -> None:
    assert replace(LAYOUT, **change).layout_id != LAYOUT.layout_id


def test_the_id_is_what_the_documentation_says() -> None:
    """Clients in other languages and stores of earlier releases depend on these bytes."""
    fields = [
        b"kvstored.layout.1",
        b"m",
        b"float32",
        struct.pack("<IB", 64, 2),
        struct.pack("<IIII", 0, 1, 0, 0),
        struct.pack("<BIBIBI", 1, 100, 3, 0, 2, 64),
    ]
    data = b"".join(struct.pack("<Q", len(field)) + field for field in fields)
    assert LAYOUT.layout_id == hashlib.sha256(data).digest()
    data += struct.pack("<Q", 4) + b"zstd"
    assert replace(LAYOUT, codec="zstd").layout_id == hashlib.sha256(data).digest()


def test_a_raw_layout_names_no_codec_on_the_wire() -> None:
    """Its records in the index are those of a version without codecs."""
    assert (LAYOUT.codec, LAYOUT.is_encoded) == (RAW, False)
    assert LAYOUT.to_proto().codec == ""
    assert replace(LAYOUT, codec="zstd").is_encoded


@pytest.mark.parametrize("name", ["", "Zstd", "-x", "a b", "zstd\n", "x" * 33, "é", "a/b"])
def test_names_that_no_codec_has(name: str) -> None:
    with pytest.raises(LayoutError, match="a codec is named by 1 to 32"):
        replace(LAYOUT, codec=name)
    if name:
        message = LAYOUT.to_proto()
        message.codec = name
        with pytest.raises(LayoutError, match="a codec is named"):
            StateLayout.from_proto(message)


def test_the_longest_name_of_a_codec() -> None:
    assert replace(LAYOUT, codec="x" * CODEC_NAME_BYTES_MAX).is_encoded


def test_sizes() -> None:
    assert LAYOUT.layer_count == 3
    assert [LAYOUT.slice_bytes(layer) for layer in range(3)] == [6400, 0, 4096]
    assert LAYOUT.slice_bytes(0, 1) == 100
    assert LAYOUT.slice_bytes(0, 0) == 0
    assert LAYOUT.chunk_bytes() == 10_496
    assert LAYOUT.chunk_bytes(2) == 328
    assert LAYOUT.layer_stride == 8192


@pytest.mark.parametrize(("byte_count", "aligned"), [(0, 0), (1, 4096), (4096, 4096), (4097, 8192)])
def test_align_up(byte_count: int, aligned: int) -> None:
    assert align_up(byte_count) == aligned


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": ()}, f"1 to {LAYERS_MAX} layers, not 0"),
        ({"layers": (KV,) * (LAYERS_MAX + 1)}, f"not {LAYERS_MAX + 1}"),
        ({"chunk_tokens": 0}, "not 0"),
        ({"chunk_tokens": CHUNK_TOKENS_MAX + 1}, f"not {CHUNK_TOKENS_MAX + 1}"),
        ({"model": ""}, "model is empty"),
        *(
            ({"dtype": name}, "is no dtype; write it as PyTorch does")
            for name in ("", "float", "Float32", "torch.float32", "string", "fp8!", "float32\n")
        ),
        # Bug: whatever had the shape of a name passed for one.
        *(({"dtype": name}, "is no dtype") for name in ("float777_x", "int3", "float16_e4m3fn")),
        ({"layers": (NONE, NONE)}, "at least one layer"),
    ],
)
def test_impossible_layouts_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        replace(LAYOUT, **change)


def test_the_largest_layout_is_accepted() -> None:
    largest = replace(LAYOUT, layers=(KV,) * LAYERS_MAX, chunk_tokens=CHUNK_TOKENS_MAX)
    assert largest.chunk_bytes() == 100 * LAYERS_MAX * CHUNK_TOKENS_MAX


@pytest.mark.parametrize("field", ["kind", "rotary", "layers"])
def test_messages_with_nonsense_are_refused(field: str) -> None:
    message = LAYOUT.to_proto()
    if field == "kind":
        message.layers[0].kind = 77  # type: ignore[assignment]
    elif field == "rotary":
        message.rotary = 0  # type: ignore[assignment]
    else:
        del message.layers[:]
    with pytest.raises(LayoutError):
        StateLayout.from_proto(message)


@pytest.mark.parametrize(
    ("python", "proto"), [(StateKind, common_pb2.StateKind), (Rotary, common_pb2.Rotary)]
)
def test_enums_have_the_values_of_protobuf(
    python: type[StateKind] | type[Rotary], proto: object
) -> None:
    values = {name.rpartition("_")[2]: value for name, value in proto.items()}  # type: ignore[attr-defined]
    values.pop("UNSPECIFIED")
    assert {member.name: member.value for member in python} == values


def test_fields_are_hashed_with_their_lengths() -> None:
    assert hash_fields([b"ab", b"c"]) != hash_fields([b"a", b"bc"])
    assert hash_fields([b"", b"a"]) != hash_fields([b"a", b""]) != hash_fields([b"a"])


@pytest.mark.parametrize("number", [-1, SHARDS_MAX + 1])
def test_shard_numbers_have_a_limit(number: int) -> None:
    with pytest.raises(LayoutError, match="numbers of a shard"):
        Shard(tensor_rank=number)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunk_tokens": 64.0}, "chunk_tokens must be 1 to .*, not 64.0"),
        ({"rotary": 77}, "rotary must be a member of Rotary, not 77"),
        ({"shard": Shard(tensor_rank=2, tensor_size=2)}, "no rank 2 among 2"),
    ],
)
def test_a_layout_that_cannot_be_ended_as_an_error_of_struct(
    change: dict[str, Any], message: str
) -> None:
    """Bug: numbers with fractions, and a layout named what no store or rank has."""
    with pytest.raises(LayoutError, match=message):
        replace(LAYOUT, **change)


def test_numbers_with_fractions_count_nothing() -> None:
    with pytest.raises(LayoutError, match=r"cannot have 1\.5 bytes"):
        LayerState(StateKind.KV, 1.5)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="numbers of a shard"):
        Shard(tensor_size=2.0)  # type: ignore[arg-type]
    assert LayerState(StateKind.KV, np.int64(2)).token_bytes == 2  # type: ignore[arg-type]


def test_a_shard_that_was_stored_without_a_good_rank_stays_readable() -> None:
    shard = Shard(tensor_rank=1)
    stored = replace(LAYOUT, is_stored=True, shard=shard)
    assert StateLayout.from_proto(stored.to_proto(), is_stored=True) == stored


@pytest.mark.parametrize(
    ("kind", "token_bytes"),
    [
        (StateKind.KV, 0),
        (StateKind.NONE, 8),
        (StateKind.HIDDEN, -1),
        (StateKind.NONE, -1),
        (StateKind.KV, TOKEN_BYTES_MAX + 1),
    ],
)
def test_a_layer_of_an_impossible_size_cannot_be_made(kind: StateKind, token_bytes: int) -> None:
    """Bug: -1 bytes a token were accepted until somebody asked for the size of a slice."""
    with pytest.raises(LayoutError, match=f"of kind {kind.name} cannot have {token_bytes} bytes"):
        LayerState(kind, token_bytes)


def test_a_layer_of_an_impossible_size_cannot_be_sent() -> None:
    message = LAYOUT.to_proto()
    message.layers[0].token_bytes = 0
    with pytest.raises(LayoutError, match="cannot have 0 bytes"):
        StateLayout.from_proto(message)


def test_token_bytes_have_a_limit() -> None:
    """So that no slice length overflows the four bytes that a header has for it."""
    assert TOKEN_BYTES_MAX * CHUNK_TOKENS_MAX < 2**32


@pytest.mark.parametrize("change", [{"model": ""}, {"dtype": "whatever"}, {"dtype": "float777_x"}])
def test_a_layout_that_was_stored_without_good_names_stays_readable(
    change: dict[str, Any],
) -> None:
    stored = replace(LAYOUT, is_stored=True, **change)
    message = stored.to_proto()
    assert StateLayout.from_proto(message, is_stored=True) == stored
    with pytest.raises(LayoutError):
        StateLayout.from_proto(message)


@pytest.mark.parametrize(
    "name",
    [
        *("bfloat16", "float8_e4m3fn", "fp8_ds_mla", "uint8", "int4", "nvfp4", "f", "u8", "bytes"),
        "uint8_turbo_quant_k8v4",
    ],
)
def test_names_that_dtypes_have(name: str) -> None:
    assert replace(LAYOUT, dtype=name).dtype == name


def test_names_are_told_apart_where_they_meet() -> None:
    ids = {
        replace(LAYOUT, model=model, dtype=dtype).layout_id
        for model, dtype in (("mu", "int8"), ("m", "uint8"))
    }
    assert len(ids) == 2


@pytest.mark.parametrize("field", ["model", "dtype"])
def test_texts_have_a_limit(field: str) -> None:
    change: dict[str, Any] = {field: "x" * (LAYOUT_TEXT_BYTES_MAX + 1)}
    with pytest.raises(LayoutError, match=f"{field} has 513 bytes"):
        replace(LAYOUT, **change)
