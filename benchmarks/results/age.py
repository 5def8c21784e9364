"""Which code a result file measured, as the file says it. Pure."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvstored.evidence import NO_CHECKOUT

_DIRTY = "-dirty"
"""How labs once said that the tree was not clean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The commit that a result measured, or else the one that brought the file.

    ``measured`` and ``is_clean`` are what the file says, None where it says nothing.
    ``committed`` is the commit that last changed the file, None where git does not know.
    ``date`` is that of the run, else that of ``committed``, ISO 8601.
    """

    measured: str | None
    is_clean: bool | None
    committed: str | None
    date: str | None

    def __str__(self) -> str:
        """As documents quote it."""
        if self.measured is not None:
            return f"commit {self.measured}{', not clean' if self.is_clean is False else ''}"
        return "commit unknown" if self.committed is None else f"committed in {self.committed}"


def said_commit(document: Mapping[str, Any]) -> tuple[str | None, bool | None]:
    """The commit that a result file says it measured, and whether the tree was clean."""
    commit = document.get("commit")
    if commit is None or commit == NO_CHECKOUT:
        return None, None
    is_clean = document.get("is_clean", not commit.endswith(_DIRTY))
    return commit.removesuffix(_DIRTY), is_clean


def program_of(document: Mapping[str, Any]) -> str:
    """The benchmark that made a result file, or else the module or script of its command."""
    if "benchmark" in document:
        return str(document["benchmark"])
    program, *arguments = shlex.split(document["command"])
    return arguments[1] if program == "python" else program
