"""A pure model of disks that may lose power: what is on media, and what may be.

Rules, as weak as POSIX allows them to be for a drive that writes pages of 4 KiB whole:

* a write makes pages pending from its beginning on; at a cut each pending page is on
  media or not, whatever became of the others, and of several writes of one page a first
  part is there;
* a flush makes durable, when it ends, what was written before it began; a write through
  a synchronous descriptor makes itself durable when it ends;
* a name that appears, vanishes or moves is pending until its folder is flushed; a
  flush of the file does not make its name durable. Changes of one name keep their order;
* a file is as long as what is on media of it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from tests.faults.power.log import Event, Flushed, Named, Written

PAGE_BYTES = 4096


class DiskError(ValueError):
    """The log has something whose order the model cannot know."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of one write that falls into one page; ``number`` is unique."""

    number: int
    begin: int
    end: int
    offset: int
    data: bytes


@dataclass(slots=True)
class Inode:
    """A file apart from its name: bytes on media, and pieces by page that may get there."""

    media: bytearray = field(default_factory=bytearray)
    pending: dict[int, list[Piece]] = field(default_factory=dict)

    def settle(self, page: int, count: int) -> None:
        """Makes the first ``count`` pending pieces of a page durable."""
        pieces = self.pending[page]
        for piece in pieces[:count]:
            store(self.media, piece)
        if count < len(pieces):
            self.pending[page] = pieces[count:]
        else:
            del self.pending[page]


@dataclass(frozen=True, slots=True)
class Renaming:
    """Names that change together: to an inode each, or to nothing."""

    number: int
    folder: str
    end: int
    names: Mapping[str, int | None]


PageUnit = tuple[int, int, tuple[Piece, ...]]
"""Inode, page, and its pending pieces."""

Choice = tuple[tuple[int, ...], tuple[int, ...]]
"""How many pieces of each page unit are on media; numbers of the renamings that are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Everything that may or may not be on media at one moment.

    ``version`` changes with what is durable.
    """

    version: int
    pages: tuple[PageUnit, ...]
    renamings: tuple[tuple[int, ...], ...]
    """Every set of pending renamings that is possible, the empty one first, all last."""

    @property
    def choice_count(self) -> int:
        """Different states that a cut may leave."""
        count = len(self.renamings)
        for _, _, pieces in self.pages:
            count *= len(pieces) + 1
        return count

    def all_choices(self) -> Iterator[Choice]:
        """Every one of them."""
        ranges = [range(len(pieces) + 1) for _, _, pieces in self.pages]
        return ((pages, names) for names in self.renamings for pages in product(*ranges))

    def identity(self, choice: Choice) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Two choices of any two moments with the same identity leave the same bytes."""
        counts, names = choice
        newest = (
            pieces[count - 1].number
            for (_, _, pieces), count in zip(self.pages, counts, strict=True)
            if count
        )
        return self.version, tuple(newest), names


class Disks:
    """All files of one log, as they are while its events take place."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.inodes: list[Inode] = []
        self.version = 0
        self._names: dict[str, int] = {}
        self._durable_names: dict[str, int] = {}
        self._renamings: list[Renaming] = []
        self._next_number = 0
        self._latest_names: dict[int, str] = {}
        for path, content in files.items():
            self._latest_names[len(self.inodes)] = path
            self._durable_names[path] = self._names[path] = len(self.inodes)
            self.inodes.append(Inode(bytearray(content)))

    def begin(self, event: Event) -> None:
        """Hears that a call begins."""
        if isinstance(event, Written):
            self._write(event)
        elif isinstance(event, Named):
            self._rename(event)

    def end(self, event: Event) -> None:
        """Hears that a call has ended."""
        if isinstance(event, Flushed):
            self._flush(event)
        elif isinstance(event, Written) and event.is_synced:
            inode = self.inodes[self._names[event.path]]
            for page in _pages(event):
                pieces = inode.pending.get(page, [])
                count = sum(piece.begin <= event.begin for piece in pieces)
                if count:
                    inode.settle(page, count)
                    self.version += 1

    def pending(self) -> Pending:
        """What may or may not be on media now."""
        reachable = set(self._durable_names.values())
        for renaming in self._renamings:
            reachable.update(inode for inode in renaming.names.values() if inode is not None)
        return Pending(
            version=self.version,
            pages=tuple(
                (number, page, tuple(pieces))
                for number in sorted(reachable)
                for page, pieces in self.inodes[number].pending.items()
            ),
            renamings=tuple(self._renaming_sets()),
        )

    def image(self, pending: Pending, choice: Choice) -> dict[str, bytearray]:
        """Copies of the files of a state; names of folders end with a slash and have no bytes."""
        counts, numbers = choice
        names = dict(self._durable_names)
        for renaming in self._renamings:
            if renaming.number in numbers:
                _apply(names, renaming)
        contents = {number: bytearray(self.inodes[number].media) for number in names.values()}
        for (inode, _, pieces), count in zip(pending.pages, counts, strict=True):
            for piece in pieces[:count] if inode in contents else ():
                store(contents[inode], piece)
        return {path: contents[inode] for path, inode in names.items() if _has_folder(path, names)}

    def name_of(self, inode: int) -> str:
        """The latest name of a file."""
        return self._latest_names[inode]

    def live_files(self) -> dict[str, bytearray]:
        """The files as the system shows them while there is power."""
        pending = self.pending()
        everything = tuple(len(pieces) for _, _, pieces in pending.pages)
        return self.image(pending, (everything, pending.renamings[-1]))

    def _write(self, event: Written) -> None:
        inode = self.inodes[self._names[event.path]]
        for page in _pages(event):
            start = max(event.offset, page * PAGE_BYTES)
            stop = min(event.offset + len(event.data), (page + 1) * PAGE_BYTES)
            data = event.data[start - event.offset : stop - event.offset]
            pieces = inode.pending.setdefault(page, [])
            if pieces and pieces[-1].end > event.begin:
                raise DiskError(f"{event.path}: two writes of page {page} at the same time")
            pieces.append(Piece(self._number(), event.begin, event.end, start, data))

    def _rename(self, event: Named) -> None:
        suffix = "/" if event.is_folder else ""
        path = event.path + suffix
        if event.is_gone:
            names: dict[str, int | None] = {path: None}
        elif event.source is not None:
            names = {event.source: None, path: self._names[event.source]}
        else:
            names = {path: len(self.inodes)}
            self.inodes.append(Inode())
        folder = event.path.rpartition("/")[0]
        if event.source is not None and event.source.rpartition("/")[0] != folder:
            raise DiskError(f"{event.path} comes from another folder")
        renaming = Renaming(self._number(), folder, event.end, names)
        self._renamings.append(renaming)
        _apply(self._names, renaming)
        self._latest_names |= {inode: path for path, inode in names.items() if inode is not None}

    def _flush(self, event: Flushed) -> None:
        inode = self._names.get(event.path)
        if inode is None:
            self._flush_folder(event)
            return
        file = self.inodes[inode]
        for page, pieces in list(file.pending.items()):
            count = sum(piece.end < event.begin for piece in pieces)
            if count:
                file.settle(page, count)
                self.version += 1

    def _flush_folder(self, event: Flushed) -> None:
        kept = []
        for renaming in self._renamings:
            if renaming.folder == event.path and renaming.end < event.begin:
                _apply(self._durable_names, renaming)
                self.version += 1
            else:
                kept.append(renaming)
        self._renamings = kept

    def _renaming_sets(self) -> Iterator[tuple[int, ...]]:
        """Sets that hold with a change all earlier ones of the same names."""
        for bits in product((False, True), repeat=len(self._renamings)):
            blocked: set[str] = set()
            for renaming, is_taken in zip(self._renamings, bits, strict=True):
                if is_taken and blocked & renaming.names.keys():
                    break
                if not is_taken:
                    blocked |= renaming.names.keys()
            else:
                yield tuple(
                    renaming.number
                    for renaming, is_taken in zip(self._renamings, bits, strict=True)
                    if is_taken
                )

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number


def store(content: bytearray, piece: Piece) -> None:
    """Brings one piece into a file, which grows as far as it must."""
    end = piece.offset + len(piece.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[piece.offset : end] = piece.data


def steps(events: list[Event]) -> list[tuple[Event, bool]]:
    """Beginnings (False) and ends (True) of all events in the order of the log."""
    found: defaultdict[int, list[tuple[Event, bool]]] = defaultdict(list)
    for event in events:
        found[event.begin].append((event, False))
        found[event.end].append((event, True))
    return [step for line in sorted(found) for step in found[line]]


def _pages(event: Written) -> range:
    last = event.offset + len(event.data) - 1
    return range(event.offset // PAGE_BYTES, last // PAGE_BYTES + 1)


def _apply(names: dict[str, int], renaming: Renaming) -> None:
    for path, inode in renaming.names.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode


def _has_folder(path: str, names: Mapping[str, int]) -> bool:
    """Whether the folder of a name is there too; those of the top always are."""
    folder = path.rstrip("/").rpartition("/")[0]
    return not folder or f"{folder}/" in names
