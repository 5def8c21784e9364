"""A put of two chunks is cut after each page that it writes, and with each page missing.

The store is opened again from exactly the media that such a cut leaves, in three ways: with
the index as it was before (a crash), with the index lost and rebuilt from the headers, and
with the index as it was after the commit (a drive that has lied about its flush).

Fails when ``Landings._verify`` trusts a header without looking at the payload (seen:
WrongBytesError for a new chunk after a rebuild).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kvstored.io.device import Device
from kvstored.io.passing import PassingDevice
from kvstored.store.check.check_report import ProblemKind
from kvstored.store.read.plan import Order
from kvstored_contract.board import SliceState
from tests.faults.media.lab import Lab, Start, fresh_lab, save_index
from tests.faults.media.served import ENCODED_FIRST, ServedStore, lengths_of, quiesce
from tests.support import labs
from tests.support.seeds import seed

OLD = [0, 1, 2]
FIRST_FREE = 5
"""A deleted chunk whose extent one of the new ones takes over."""


@dataclass(frozen=True, eq=False)
class PageWrite:
    device_index: int
    offset: int
    data: np.ndarray


class RecordingDevice(PassingDevice):
    """Lists the pages of every write, those of all devices in one order."""

    def __init__(self, inner: Device, device_index: int, pages: list[PageWrite]) -> None:
        super().__init__(inner)
        self._device_index = device_index
        self._pages = pages

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        super().writev(buffers, offset)
        data = np.frombuffer(b"".join(buffers), np.uint8)
        for start in range(0, data.nbytes, 4096):
            page = PageWrite(self._device_index, offset + start, data[start : start + 4096])
            self._pages.append(page)


@dataclass(frozen=True)
class Recorded:
    """Media before a put of two chunks, the pages that it wrote, and the index before and after."""

    images: list[np.ndarray]
    pages: list[PageWrite]
    before: Path
    after: Path
    new: list[int]

    def cut(self, kept: Sequence[PageWrite]) -> list[np.ndarray]:
        """The media when only these pages have landed."""
        images = [image.copy() for image in self.images]
        for page in kept:
            images[page.device_index][page.offset : page.offset + 4096] = page.data
        return images


@pytest.fixture(scope="module", params=["two devices", "one device", "encoded"])
def recorded(request: pytest.FixtureRequest) -> Iterator[Recorded]:
    """One new chunk opens a slab where nothing was, or takes over the extent of an old one.

    Encoded ones, whose slices differ in length, open a slab of their own class.
    """
    stripes = [0, 1] if request.param == "two devices" else [0, 0]
    new = [ENCODED_FIRST, ENCODED_FIRST + 1] if request.param == "encoded" else [10, 11]
    pages: list[PageWrite] = []
    with fresh_lab() as lab:
        count = iter(range(2))
        with lab.open(lambda inner: RecordingDevice(inner, next(count), pages)) as served:
            served.put_durable([*OLD, FIRST_FREE], stripes=[0] * 4)
            served.delete([FIRST_FREE])
            pages.clear()
            images = [device.media.copy() for device in lab.devices]
            before = save_index(served, lab.folder / "before")
            served.put_durable(new, stripes=stripes)
            after = save_index(served, lab.folder / "after")
        slab_headers = 0 if request.param == "one device" else 1
        slice_pages = sum(-(-length // 4096) for number in new for length in lengths_of(number))
        assert len(pages) == 2 + slice_pages + slab_headers
        yield Recorded(images, list(pages), before, after, new)


def opened_at(
    recorded: Recorded,
    folder: Path,
    kept: Sequence[PageWrite],
    *,
    index: Path,
    start: Start,
    check: Callable[[ServedStore], None],
) -> None:
    lab = Lab.of(folder, index, recorded.cut(kept))
    with lab.open(start=start) as served:
        check(served)
        served.assert_released()


STEPS = labs.CUTS.sizes("step")


def cuts(recorded: Recorded, step: int) -> Iterator[list[PageWrite]]:
    """What has landed: the first n pages for each n, then all but one page.

    Of both, one of ``step`` pages, and chance says which one.
    """
    pages, first = recorded.pages, seed() % step
    for count in range(first, len(pages) + 1, step):
        yield pages[:count]
    for missing in range(first, len(pages), step):
        yield pages[:missing] + pages[missing + 1 :]


def put_anew(served: ServedStore, numbers: list[int]) -> None:
    served.put_durable(numbers)
    served.forget_dram(numbers)
    assert served.whole(numbers) == set(numbers)


@STEPS
def test_crash_at_a_page(recorded: Recorded, step: int, tmp_path: Path) -> None:
    """Neither new chunk is committed: nothing of them is served, and the old ones are there."""

    def check(served: ServedStore) -> None:
        for order in Order:
            assert served.whole([*OLD, FIRST_FREE], order=order) == set(OLD)
            assert (served.read(new, order=order) == SliceState.MISSING).all()
        put_anew(served, new)

    new = recorded.new
    for number, kept in enumerate(cuts(recorded, step)):
        opened_at(
            recorded,
            tmp_path / str(number),
            kept,
            index=recorded.before,
            start=Start.WALK,
            check=check,
        )


@STEPS
@pytest.mark.parametrize("start", [Start.REBUILD, Start.WALK], ids=["rebuilt", "lied to"])
def test_headers_without_their_payload_at_a_page(
    recorded: Recorded, step: int, tmp_path: Path, start: Start
) -> None:
    """The index names both new chunks: each is whole, or a miss that goes into quarantine.

    A rebuild may bring back the deleted chunk, with the bytes that it had.
    """
    index = recorded.before if start is Start.REBUILD else recorded.after

    def check(served: ServedStore) -> None:
        assert set(OLD) <= served.whole([*OLD, FIRST_FREE])
        first = served.whole(new)
        quiesce(served)
        again = served.read(new) == SliceState.RESIDENT
        assert (again.all(axis=1) == again.any(axis=1)).all(), "a chunk is served in part"
        assert {n for n, is_there in zip(new, again.all(axis=1), strict=True) if is_there} == first
        # What is left to find is the slab header, where that page was the one cut off.
        kinds = {problem.kind for problem in served.check().problems}
        assert kinds <= {ProblemKind.SLAB_HEADER}
        put_anew(served, new)

    new = recorded.new
    for number, kept in enumerate(cuts(recorded, step)):
        opened_at(recorded, tmp_path / str(number), kept, index=index, start=start, check=check)


def test_everything_landed(recorded: Recorded, tmp_path: Path) -> None:
    """Acknowledged is durable: all pages and the committed index give both chunks."""

    def check(served: ServedStore) -> None:
        assert served.whole(OLD) == set(OLD)
        assert served.whole(recorded.new) == set(recorded.new)

    for start in Start:
        opened_at(
            recorded,
            tmp_path / start.value,
            recorded.pages,
            index=recorded.after,
            start=start,
            check=check,
        )
