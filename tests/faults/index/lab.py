"""Damages an index again and again, and starts a store from it in a process of its own.

A damaged map can kill the process that reads it, so that every start is a forked child, as the
daemon is a process; it looks through the index in a child of its own, as the daemon does.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Self

from kvstored.store.index import probe as index_probe
from kvstored.store.index.index import DATA_FILE
from kvstored.store.index.page_format import (
    INTEGER_KEYS,
    META_HEAD_BYTES,
    META_PAGES,
    Meta,
    Tree,
    newest,
)
from kvstored.store.index.service import close_cleanly
from tests.faults.index.specimen import (
    NEW,
    STORED,
    Specimen,
    make_specimen,
    put,
    readable,
    started,
)
from tests.support.forked_probe import ForkedProbe

MEMORY = Path("/dev/shm")
PAGE_BYTES = 4096
HEAD_BYTES = 24
"""The header of a page, and where its first nodes lie."""
PATIENCE_S = 60
"""A start takes some hundredths of a second."""


class Stop(Enum):
    """How the store had stopped before the index was damaged."""

    KILLED = "killed"
    CLEAN = "clean"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a start made of an index.

    ``missing`` and ``wrong`` are chunks that were durable before; ``lost`` those that were
    there after the start and not any more after some puts. ``refusal`` is why the start
    was refused, ``death`` the signal that ended the process, if any did. ``restarted`` is what
    the next start made of an index that could not be written.
    """

    was_rebuilt: bool = False
    missing: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    put_reasons: list[int] = field(default_factory=list)
    refusal: str = ""
    death: int = 0
    restarted: str = ""

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.death:
            return f"died of {signal.Signals(self.death).name}"
        if self.wrong:
            return "wrong"
        if self.refusal:
            return "refused"
        if self.lost:
            return "lost"
        if any(self.put_reasons):
            is_mended = self.restarted in {"rebuilt", "harmless"}
            return "read-only until a restart" if is_mended else "read-only"
        if self.was_rebuilt:
            return "rebuilt, missing" if self.missing else "rebuilt"
        return "records dropped" if self.missing else "harmless"


class IndexLab:
    """One store, and its index as a kill and as a clean stop leave it.

    The process must have no threads. As a context manager it removes its files.
    """

    def __init__(self, chooser: random.Random) -> None:
        # Memory where there is some: the labs of crashes look at what a flush does.
        folder = MEMORY if MEMORY.is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="kvstored-index-", dir=folder)
        self.folder = Path(self._folder.name)
        vars(index_probe)["subprocess"] = SimpleNamespace(Popen=ForkedProbe, PIPE=subprocess.PIPE)
        self.specimen = make_specimen(self.folder / "store", chooser)
        self.templates = {
            Stop.KILLED: self.specimen.folder,
            Stop.CLEAN: self.folder / "clean",
        }
        shutil.copytree(self.specimen.folder, self.templates[Stop.CLEAN])
        outcome = in_child(lambda: stop_cleanly(self.specimen, self.templates[Stop.CLEAN]))
        assert outcome.verdict == "harmless", outcome

    def spans(self, stop: Stop) -> tuple[Sequence[int], ...]:
        """Bytes of the index's file: all, its meta pages, heads of the others, free pages."""
        data = (self.templates[stop] / DATA_FILE).read_bytes()
        metas = (Meta.decode(data[start : start + PAGE_BYTES]) for start in (0, PAGE_BYTES))
        free = Tree.decode(newest(*metas).free, INTEGER_KEYS)
        assert free.depth == 1, free
        starts = range(0, len(data), PAGE_BYTES)
        heads = [start + place for start in starts for place in range(HEAD_BYTES)]
        root = free.root * PAGE_BYTES
        return (
            range(len(data)),
            [start + place for start in starts[:META_PAGES] for place in range(META_HEAD_BYTES)],
            heads[META_PAGES * HEAD_BYTES :],
            [place for place in range(root, root + PAGE_BYTES) if data[place]],
        )

    def start(self, stop: Stop, damage: Callable[[Path], None]) -> Outcome:
        """Starts from an index that ``damage`` has changed; it gets the index's folder."""
        path = self.folder / "case" / "index"
        shutil.rmtree(path.parent, ignore_errors=True)
        shutil.copytree(self.templates[stop], path)
        damage(path)
        return in_child(lambda: serve(self.specimen, path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        vars(index_probe)["subprocess"] = subprocess
        self._folder.cleanup()


def serve(specimen: Specimen, path: Path) -> Outcome:
    """As ``serve_once``, and once more if the index could not be written."""
    outcome = serve_once(specimen, path)
    if outcome.verdict == "read-only":
        outcome.restarted = serve_once(specimen, path).verdict
    return outcome


def serve_once(specimen: Specimen, path: Path) -> Outcome:
    """Starts, reads everything, puts some, reads everything again, and ends as if killed."""
    outcome = Outcome()
    stored, new = list(STORED), list(NEW)
    try:
        with started(specimen, path) as (opened, index, _), closing(index):
            outcome.was_rebuilt = any(path.parent.glob("index.damaged-*"))
            found, wrong = readable(opened, stored)
            outcome.missing = sorted(set(stored) - found)
            # One by one, so that LMDB takes free pages and reuses what it frees.
            outcome.put_reasons = [int(put(opened, [number])[0]) for number in new]
            found_later, wrong_later = readable(opened, stored)
            outcome.lost = sorted(found - found_later)
            outcome.wrong = sorted(wrong | wrong_later)
    except AssertionError:
        raise
    except Exception as error:
        outcome.refusal = f"{type(error).__name__}: {error}"
    return outcome


def stop_cleanly(specimen: Specimen, path: Path) -> Outcome:
    """Starts and stops in order, which leaves marker and snapshot."""
    with started(specimen, path) as (opened, index, recovered):
        pass
    close_cleanly(index, recovered().table, opened.store.next_stamp)
    return Outcome()


def in_child(run: Callable[[], Outcome]) -> Outcome:
    """What ``run`` returns in a forked child, or the signal that ended it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE_S)
        status = 1
        try:
            with os.fdopen(writing, "w") as output:
                json.dump(asdict(run()), output)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    _, raw = os.waitpid(pid, 0)
    status = os.waitstatus_to_exitcode(raw)
    if status < 0:
        return Outcome(death=-status)
    assert status == 0, "the lab itself has failed"
    return Outcome(**json.loads(said))
