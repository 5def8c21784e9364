import numpy as np

from benchmarks.workload import KIB, Workload

WORKLOAD = Workload(chunk_count=5, slice_bytes=16 * KIB, layer_count=3)


def test_the_layout_has_slices_of_the_size() -> None:
    layout = WORKLOAD.layout
    assert layout.slice_bytes(2) == WORKLOAD.slice_bytes
    assert layout.chunk_bytes() == WORKLOAD.chunk_bytes
    assert WORKLOAD.payload_bytes == 5 * 3 * 16 * KIB


def test_the_payload_repeats_with_the_seed_and_no_chunk_is_like_another() -> None:
    payload = WORKLOAD.payload(7)
    assert payload.shape == (WORKLOAD.payload_bytes,)
    np.testing.assert_array_equal(payload, WORKLOAD.payload(7))
    assert not np.array_equal(payload, WORKLOAD.payload(8))
    chunks = payload.reshape(WORKLOAD.chunk_count, -1)
    assert len({chunk.tobytes() for chunk in chunks}) == WORKLOAD.chunk_count


def test_names_give_fresh_chained_keys() -> None:
    first, second = WORKLOAD.new_chunks("first"), WORKLOAD.new_chunks("second")
    assert len({chunk.key for chunk in first + second}) == 10
    assert [chunk.parent_key for chunk in first] == [b"", *(chunk.key for chunk in first[:-1])]
