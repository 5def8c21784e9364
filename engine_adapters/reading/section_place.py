"""Where the slices of a section lie in the arena."""

from engine_adapters.reading.section import Section
from kvstored_client import Placement, Region


def placement_of(section: Section, region: Region, offset: int, chunk_count: int) -> Placement:
    """Where a call with ``chunk_count`` chunks has them: from byte ``offset`` of ``region`` on."""
    return Placement(
        regions=(region,),
        base=region.offset + offset,
        layer_stride=chunk_count * section.slice_stride,
        chunk_stride=section.slice_stride,
    )
