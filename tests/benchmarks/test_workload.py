import numpy as np
import pytest

from benchmarks.workload import GIB, KIB, MIB, Workload, numbered_payload, size_label

WORKLOAD = Workload(chunk_count=5, slice_bytes=16 * KIB, layer_count=3)


def test_the_layout_has_slices_of_the_size() -> None:
    layout = WORKLOAD.layout
    assert layout.slice_bytes(2) == WORKLOAD.slice_bytes
    assert layout.chunk_bytes() == WORKLOAD.chunk_bytes
    assert WORKLOAD.payload_bytes == 5 * 3 * 16 * KIB
    assert Workload(chunk_count=9, slice_bytes=16 * KIB, layer_count=3).layout is layout


def test_a_payload_is_cut_into_whole_chunks_only() -> None:
    cut = Workload.of_payload(240 * KIB, slice_bytes=16 * KIB, layer_count=3)
    assert cut == WORKLOAD
    for payload_bytes in (0, 241 * KIB):
        with pytest.raises(AssertionError):
            Workload.of_payload(payload_bytes, slice_bytes=16 * KIB, layer_count=3)


def test_the_payload_repeats_with_the_seed_and_no_slice_is_like_another() -> None:
    payload = numbered_payload(40 * MIB, 7)
    assert payload.shape == (40 * MIB,)
    np.testing.assert_array_equal(payload, numbered_payload(40 * MIB, 7))
    assert not np.array_equal(payload, numbered_payload(40 * MIB, 8))
    slices = payload.reshape(-1, 16 * KIB)
    assert len({one.tobytes() for one in slices}) == len(slices)


def test_names_and_layouts_give_fresh_chained_keys() -> None:
    first, second = WORKLOAD.new_chunks("first"), WORKLOAD.new_chunks("second")
    other = Workload(chunk_count=5, slice_bytes=32 * KIB, layer_count=3).new_chunks("first")
    assert len({chunk.key for chunk in first + second + other}) == 15
    assert [chunk.parent_key for chunk in first] == [b"", *(chunk.key for chunk in first[:-1])]


@pytest.mark.parametrize(
    ("byte_count", "label"),
    [(16 * KIB, "16kib"), (MIB, "1mib"), (1536 * KIB, "1536kib"), (GIB, "1024mib")],
)
def test_sizes_in_keys(byte_count: int, label: str) -> None:
    assert size_label(byte_count) == label
