from engine_adapters.reading.section import Section
from engine_adapters.reading.section_reads import placement_of
from kvstored_client import Region


def test_slices_of_one_layer_lie_together() -> None:
    section = Section(first_layer=3, layer_count=2, slice_stride=4096)
    region = Region(
        memoryview(bytearray(8192)),
        arena=None,
        offset=8192,
        is_alive=lambda: True,
        release=lambda _: None,
    )
    placement = placement_of(section, region, 4096, 5)
    assert placement.regions == (region,)
    assert placement.base == 12_288
    assert placement.chunk_stride == 4096
    assert placement.layer_stride == 5 * 4096
    assert placement.block_offsets == ()
