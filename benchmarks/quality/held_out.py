"""Three English texts that every checkout has, and that no model was trained on."""

import sysconfig
import textwrap
from pathlib import Path
from pydoc_data.topics import topics

from benchmarks.training.markup import (
    docstring_paragraphs,
    markdown_paragraphs,
    plain_paragraphs,
)
from benchmarks.training.prose import new_prose

PROJECT = Path(__file__).parents[2]

HELD_OUT_PACKAGES = ("asyncio", "email", "logging", "multiprocessing", "unittest")
"""Packages of Python's standard library whose docstrings are no training text."""


def held_out_texts() -> dict[str, str]:
    """The texts by name: paragraphs of prose, separated by blank lines.

    ``reference`` is Python's language reference, ``docstrings`` those of a few of its packages,
    as the interpreter that runs this has them; ``documents`` are the project's own.
    """
    return {name: "\n\n".join(paragraphs) for name, paragraphs in _paragraphs().items()}


def held_out_paragraphs() -> set[str]:
    """All paragraphs of the texts."""
    return {paragraph for paragraphs in _paragraphs().values() for paragraph in paragraphs}


def _paragraphs() -> dict[str, list[str]]:
    reference = [textwrap.dedent(topics[name]) for name in sorted(topics)]
    own = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
    library = Path(sysconfig.get_path("stdlib"))
    modules = [
        path for name in HELD_OUT_PACKAGES for path in sorted((library / name).glob("**/*.py"))
    ]
    found = {
        "reference": [part for text in reference for part in plain_paragraphs(text)],
        "documents": [part for path in own for part in markdown_paragraphs(_text(path))],
        "docstrings": [part for path in modules for part in docstring_paragraphs(_text(path))],
    }
    return {name: list(new_prose(parts, set())) for name, parts in found.items()}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
