"""Both implementations of ``Slices`` under one class of tests."""

from engine_adapters.reading.arena_slices import ArenaSlices
from engine_adapters.reading.decoded_slices import DecodedSlices
from engine_adapters.reading.section_reads import SectionReads
from engine_adapters.reading.slice_format import SliceFormat
from engine_adapters.reading.slices import Slices
from kvstored_client import RAW
from tests.engine_adapters.reading.slices_conformance import SlicesConformance


class TestArenaSlices(SlicesConformance):
    codec = RAW

    def make(self, reads: SectionReads, slice_format: SliceFormat) -> Slices:
        return ArenaSlices(reads, slice_format)


class TestDecodedSlices(SlicesConformance):
    codec = "zstd"

    def make(self, reads: SectionReads, slice_format: SliceFormat) -> Slices:
        assert slice_format.codec is not None
        return DecodedSlices(reads, slice_format, slice_format.codec, spent=lambda _: None)
