"""Starts a store from one state that a cut has left, and says what contradicts its promises.

Everything is the product's own: the check, the start, the read path, the clean stop. Only
the devices are memory that answers at once, without engine and schedule, and the child
that looks through the index after an unclean stop is a call in this process, which is a
hundred times faster. Where a damaged map kills the process, the lab sees that.

The check runs before recovery, on what the cut left: recovery would drop what contradicts
the rest, and an operator may check before he starts. What it may find there is named in
``_is_harmless``. Behind recovery it must find nothing at all.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from kvstored import daemon
from kvstored.daemon import open_store
from kvstored.io.memory_device import MemoryDevice
from kvstored.store.check import offline_check
from kvstored.store.check.check_report import Problem, ProblemKind
from kvstored.store.check.offline_check import check_store
from kvstored.store.index import pages as index_pages
from kvstored.store.index import service as index_service
from kvstored.store.index.index import DATA_FILE, Index, IndexFailure
from kvstored.store.index.probe import probe
from kvstored.store.space import device_set
from kvstored.store.space.device_set import open_device_set
from kvstored.tiers.tiered_store import TieredStore
from tests.faults.power.chunks import (
    INDEX_MAP_BYTES,
    LAYOUTS,
    NUMBERS,
    chunk_of,
    config_of,
    device_paths,
    index_path,
    layout_of,
    lengths_of,
    payload_of,
)
from tests.faults.power.marks import Ledger, Promise
from tests.faults.power.recovered import broken_sequences
from tests.faults.power.served import Slices, read_slices
from tests.faults.power.stand_ins import InlineEngine, InlineExecutor, Warnings

Found = dict[int, Slices]
"""The slices of each chunk by its number."""

CHECKED_AGAIN = 8
"""Behind recovery every so many states are checked again: what is served was verified then."""
CUT_STOP_WARNING = "is not as the last stop left it"
"""What may be logged: a stop that was cut short leaves its mark empty."""
CHECK_READ_BYTES = 64 * 1024
"""Memory of the check, which populates it: its own size is for chunks of megabytes."""


class Examiner:
    """Looks at one state after the other in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = config_of(folder, depth_per_device=1)
        self._media: dict[str, MemoryDevice] = {}
        self._warnings = Warnings()
        self.state_count = 0
        self.seen: Counter[str] = Counter()

    @contextmanager
    def product(self) -> Iterator[None]:
        """The product with devices in memory, and with the warnings that it logs kept."""
        logger = logging.getLogger("kvstored")
        logger.addHandler(self._warnings)
        logger.propagate = False
        with (
            patch.object(device_set, "FileDevice", self),
            patch.object(daemon, "open_engine", InlineEngine),
            patch.object(daemon, "scheduled", lambda engine, _: engine),
            patch.object(index_service, "probe_in_child", probe),
            patch.object(offline_check, "READ_BYTES", CHECK_READ_BYTES),
            patch.object(offline_check, "ThreadPoolExecutor", InlineExecutor),
            patch.object(index_pages, "find_mapping", lambda _: None),
        ):
            try:
                yield
            finally:
                logger.removeHandler(self._warnings)
                logger.propagate = True

    def open(self, name: str, *, readonly: bool = False) -> MemoryDevice:
        """Stands for ``FileDevice.open``."""
        return self._media[name]

    def examine(self, image: dict[str, bytearray], ledger: Ledger) -> list[str]:
        """What is wrong with a state, in sentences; nothing if all is well.

        Before the store has given any answer even the index may be half there.
        """
        is_answered = ledger.answer_count > 0
        self._place(image)
        found = [f"before recovery: {problem}" for problem in self._check(is_answered=is_answered)]
        self._warnings.messages.clear()
        try:
            with open_store(self._config) as (store, _):
                try:
                    found += broken_promises(_read_all(store), ledger.promises)
                    found += broken_sequences(store, ledger)
                    found += _signs_of_damage(store)
                finally:
                    store.close()
        except Exception as error:
            found.append(f"recovery raised {error!r}")
            return found
        if is_answered:
            found += [
                f"recovery warned: {message}"
                for message in self._warnings.messages
                if not self._is_harmless_warning(message)
            ]
        if self.state_count % CHECKED_AGAIN == 0:
            found += [f"after recovery: {problem}" for problem in self._check(is_answered=True)]
        self.state_count += 1
        return found

    def _place(self, image: dict[str, bytearray]) -> None:
        """Brings the files of a state to where the store looks for them."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        devices = {path.name: path for path in device_paths(self._folder)}
        for name, content in sorted(image.items()):
            if name in devices:
                path = str(devices[name])
                device = MemoryDevice(path, len(content))
                device.media = np.frombuffer(content, np.uint8)
                self._media[path] = device
            elif name.endswith("/"):
                (self._folder / name).mkdir()
            elif "/" in name:
                (self._folder / name).write_bytes(content)

    def _check(self, *, is_answered: bool) -> list[str]:
        """What ``kvstored check`` finds, without what an interrupted start may leave."""
        opened = open_device_set(self._config.store.devices, readonly=True)
        try:
            if not is_answered and not (index_path(self._folder) / DATA_FILE).exists():
                return []
            index = Index.open(index_path(self._folder), map_bytes=INDEX_MAP_BYTES, readonly=True)
            try:
                report = check_store(index, opened, lambda _done, _total: None)
            finally:
                index.close()
        except IndexFailure as error:
            return [str(error)] if is_answered else []
        finally:
            opened.close()
        return [
            f"{problem.kind.value}, {problem.where}: {problem.what}"
            for problem in report.problems
            if not self._is_harmless(problem, is_answered=is_answered)
        ]

    def _is_harmless_warning(self, message: str) -> bool:
        """Whether a warning speaks of a stop that was cut short; the index is sound then."""
        is_cut_stop = message.endswith(CUT_STOP_WARNING)
        self.seen[CUT_STOP_WARNING] += is_cut_stop
        return is_cut_stop

    def _is_harmless(self, problem: Problem, *, is_answered: bool) -> bool:
        """A start that was cut short leaves two epochs in the copies, or an empty index."""
        is_epoch = problem.kind is ProblemKind.SUPERBLOCK and problem.what.startswith("differs")
        self.seen["superblock copies of two epochs"] += is_epoch
        return is_epoch or (problem.kind is ProblemKind.INDEX_META and not is_answered)


def broken_promises(found: Found, promises: dict[int, Promise]) -> list[str]:
    """Compares what was served with what must and what may be."""
    broken = []
    for number, slices in found.items():
        promise = promises.get(number, Promise())
        is_served = None not in slices
        if promise.required is not None and not is_served:
            broken.append(f"chunk {number} version {promise.required} is lost")
        served = {layer: part for layer, part in enumerate(slices) if part is not None}
        if served and not any(
            all(part == _slice(number, version, layer) for layer, part in served.items())
            for version in promise.allowed
        ):
            broken.append(f"chunk {number} has bytes of none of {sorted(promise.allowed)}")
    return broken


def _slice(number: int, version: int, layer: int) -> bytes:
    layout = layout_of(number)
    start = layer * layout.layer_stride
    return payload_of(number, version)[start : start + lengths_of(number, version)[layer]]


def _read_all(store: TieredStore) -> Found:
    """Everything that the store serves of the chunks that are put."""
    found: Found = {}
    for layout in LAYOUTS:
        numbers = [number for number in NUMBERS if layout_of(number) == layout]
        keys = [chunk_of(number).key for number in numbers]
        found |= dict(zip(numbers, read_slices(store, layout, keys), strict=True))
    return found


def _signs_of_damage(store: TieredStore) -> list[str]:
    """Counters that move only when something on media is not what the index says."""
    counters = store.inspection.stats().counters
    names = ("suspected_chunks", "quarantined_chunks", "device_errors")
    return [f"{counters[name]} {name}" for name in names if counters.get(name)]
