from benchmarks.storage.space import device_bytes, dram_bytes, slab_count
from benchmarks.workload import KIB, MIB, Workload

EIGHT_MIB = Workload(chunk_count=20, slice_bytes=256 * KIB, layer_count=32)
THIRTY_TWO_MIB = Workload(chunk_count=5, slice_bytes=MIB, layer_count=32)


def test_pages_of_headers_cost_a_chunk_in_each_slab() -> None:
    assert slab_count(EIGHT_MIB, 7, 64 * MIB) == 1
    assert slab_count(EIGHT_MIB, 8, 64 * MIB) == 2
    filling = Workload(chunk_count=1, slice_bytes=4 * KIB, layer_count=15)
    assert slab_count(filling, 1023, 64 * MIB) == 1
    assert slab_count(filling, 1024, 64 * MIB) == 2
    assert slab_count(THIRTY_TWO_MIB, 2, 64 * MIB) == 2
    assert slab_count(THIRTY_TWO_MIB, 7, 256 * MIB) == 1


def test_a_device_has_room_for_its_share_of_every_workload() -> None:
    # 2 x 10 chunks of 8 MiB in three slabs, 3 chunks of 32 MiB in three, one to spare.
    stored = [EIGHT_MIB, THIRTY_TWO_MIB, EIGHT_MIB]
    assert device_bytes(stored, 2) == MIB + (3 + 3 + 1) * 64 * MIB + 4096


def test_dram_has_room_for_all() -> None:
    assert dram_bytes([EIGHT_MIB, EIGHT_MIB, THIRTY_TWO_MIB]) == (6 + 5) * 64 * MIB
