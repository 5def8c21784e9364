"""Flips anywhere on media, against the offline check: what vouches for bytes is all looked at."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

from kvstored.format.geometry import HEADER_BYTES
from kvstored.store.check.check_report import CheckReport, ProblemKind
from kvstored.store.check.offline_check import check_store
from kvstored.store.space.slab_scan import slab_places
from tests.faults.media.flips_index import IndexFile
from tests.faults.media.flips_target import Specimen, Target, Verdict, Violation
from tests.faults.media.lab import device_set_of

PAGE_BITS = 8 * 4096
INDEX_KINDS = {ProblemKind.INDEX_ENTRY, ProblemKind.INDEX_TREE, ProblemKind.INDEX_META}


class CheckedTarget(Target):
    """One flip in a chunk, a slab header in use, a superblock or the index: the check finds it."""

    name = "check"

    def __init__(self, specimen: Specimen) -> None:
        self._file = IndexFile(specimen)
        self._devices = specimen.lab.devices
        self._device_set = device_set_of(self._devices)
        self._sources = specimen.sources
        used = {
            (source.record.extent.device_index, place.slab_index)
            for source in self._sources
            for place in slab_places(self._device_set)
            if place.device_index == source.record.extent.device_index
            and 0 <= source.record.extent.offset - place.offset < place.byte_count
        }
        self._slab_headers = [
            (place.device_index, place.offset)
            for place in slab_places(self._device_set)
            if (place.device_index, place.slab_index) in used
        ]
        self._expect(self._check(), set(), "no flip")

    def flip(self, dice: random.Random) -> list[Verdict]:
        plant, kinds = dice.choice(
            [
                (self._in_extent_header, {ProblemKind.EXTENT_HEADER}),
                (self._in_slice, {ProblemKind.SLICE}),
                (self._in_slab_header, {ProblemKind.SLAB_HEADER}),
                (self._in_superblock, {ProblemKind.SUPERBLOCK}),
                (self._file.one_flip, INDEX_KINDS),
            ]
        )
        with plant(dice) as where:
            self._expect(self._check(), kinds, where)
        return [Verdict.DETECTED]

    def close(self) -> None:
        self._file.close()

    def _check(self) -> CheckReport:
        return check_store(self._file.index, self._device_set, lambda *_: None)

    def _expect(self, report: CheckReport, kinds: set[ProblemKind], where: str) -> None:
        found = {problem.kind for problem in report.problems}
        if not found <= kinds or report.is_sound is bool(kinds):
            raise Violation(f"{where}: the check finds {report.problems}")

    @contextmanager
    def _bit(self, device_index: int, bit: int) -> Iterator[str]:
        media = self._devices[device_index].media
        media[bit // 8] ^= 1 << bit % 8
        try:
            yield f"bit {bit} of device {device_index}"
        finally:
            media[bit // 8] ^= 1 << bit % 8

    @contextmanager
    def _in_extent_header(self, dice: random.Random) -> Iterator[str]:
        extent = dice.choice(self._sources).record.extent
        bit = 8 * extent.offset + dice.randrange(PAGE_BITS)
        with self._bit(extent.device_index, bit) as where:
            yield where

    @contextmanager
    def _in_slice(self, dice: random.Random) -> Iterator[str]:
        source = dice.choice(self._sources)
        layer = dice.randrange(source.geometry.layer_count)
        start = source.record.extent.offset + source.geometry.slice_offsets[layer]
        assert start >= source.record.extent.offset + HEADER_BYTES
        bit = 8 * start + dice.randrange(8 * source.geometry.slice_bytes[layer])
        with self._bit(source.record.extent.device_index, bit) as where:
            yield where

    @contextmanager
    def _in_slab_header(self, dice: random.Random) -> Iterator[str]:
        device_index, offset = dice.choice(self._slab_headers)
        with self._bit(device_index, 8 * offset + dice.randrange(PAGE_BITS)) as where:
            yield where

    @contextmanager
    def _in_superblock(self, dice: random.Random) -> Iterator[str]:
        device_index = dice.randrange(len(self._devices))
        offset = dice.choice(self._device_set.superblocks[device_index].copy_offsets)
        with self._bit(device_index, 8 * offset + dice.randrange(PAGE_BITS)) as where:
            yield where
