"""The training text, gathered from the documents of this machine, and its sizes."""

from dataclasses import dataclass

from benchmarks.quality.held_out import held_out_paragraphs
from benchmarks.training.prose import new_prose
from benchmarks.training.sources import library_files, package_files, read_text

PACKAGE_CHARACTERS_MAX = 3_000_000
"""Of one package: none may be most of the text."""
LIBRARY = "python"
"""The name of the standard library among the packages."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """``documents`` in a fixed order, and how many characters each package gave."""

    documents: tuple[str, ...]
    sizes: dict[str, int]

    @property
    def text(self) -> str:
        """All of it; blank lines separate paragraphs and documents."""
        return "\n\n".join(self.documents)


def gather() -> Corpus:
    """Prose of every document that ships with Python and Debian here, each paragraph once.

    Equal machines give equal texts. What is held out is left out wherever it comes up.
    """
    seen = held_out_paragraphs()
    documents: list[str] = []
    sizes: dict[str, int] = {}
    for package, files in ((LIBRARY, list(library_files())), *package_files()):
        size = 0
        for path, reader in files:
            if size < PACKAGE_CHARACTERS_MAX:
                text = "\n\n".join(new_prose(reader(read_text(path)), seen))
                size += len(text)
                documents += [text] if text else []
        if size:
            sizes[package] = size
    return Corpus(tuple(documents), sizes)
