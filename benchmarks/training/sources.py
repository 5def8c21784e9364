"""Where English documents lie that ship with Python and Debian."""

import gzip
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.quality.held_out import HELD_OUT_PACKAGES
from benchmarks.training.markup import (
    docstring_paragraphs,
    markdown_paragraphs,
    plain_paragraphs,
    pod_paragraphs,
    roff_paragraphs,
)

Reader = Callable[[str], list[str]]
"""From the text of a file to its paragraphs."""

PACKAGE_LISTS = Path("/var/lib/dpkg/info")
DOCUMENTS = "/usr/share/doc/"
_MANUALS = tuple(f"/usr/share/man/man{section}/" for section in range(1, 9))
_OTHER_TEXTS = ("/usr/share/info/", "/usr/share/common-licenses/")
_PERL = ("/usr/share/perl", "/usr/lib/x86_64-linux-gnu/perl")
_MARKED_UP = (".md", ".rst")
_PLAIN = (".txt", "README", "README.Debian")
_PYTHON_TESTS = frozenset({"test", "tests", "idle_test", "site-packages", "lib2to3"})


def library_files() -> Iterator[tuple[Path, Reader]]:
    """Modules of the standard library of this interpreter that are not held out, in order."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.glob("**/*.py")):
        parts = path.relative_to(library).parts
        if parts[0] not in HELD_OUT_PACKAGES and not _PYTHON_TESTS.intersection(parts):
            yield path, docstring_paragraphs


def package_files() -> Iterator[tuple[str, list[tuple[Path, Reader]]]]:
    """Debian's installed packages in order of their names, each with its documents."""
    for listing in sorted(PACKAGE_LISTS.glob("*.list")):
        package = listing.stem.partition(":")[0]
        # What is in Debian's packages of Python is held out, or comes from this interpreter.
        if package.startswith("python") or not _is_debian(package):
            continue
        names = listing.read_text(encoding="utf-8").splitlines()
        files = [(Path(name), reader) for name in sorted(names) if (reader := reader_of(name))]
        yield package, [(path, reader) for path, reader in files if path.is_file()]


def _is_debian(package: str) -> bool:
    """Whether its copyright file says so, as Debian asks for; those of other makers do not."""
    path = Path(DOCUMENTS, package, "copyright")
    return path.is_file() and "debian" in read_text(path).lower()


def reader_of(name: str) -> Reader | None:
    """What reads a document of this path; None for what is no document, or not in English."""
    bare = name.removesuffix(".gz")
    if bare.startswith(_MANUALS):
        return roff_paragraphs
    if bare.startswith(_OTHER_TEXTS):
        return plain_paragraphs
    if bare.startswith(_PERL) and bare.endswith((".pod", ".pm")):
        return pod_paragraphs
    if bare.startswith(DOCUMENTS):
        if bare.endswith(_MARKED_UP):
            return markdown_paragraphs
        if bare.endswith(_PLAIN):
            return plain_paragraphs
    return None


def read_text(path: Path) -> str:
    """The text of a file, unpacked if need be; bytes that are no UTF-8 are replaced."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return content.decode("utf-8", errors="replace")
