"""What a result says of its origin. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

NO_CHECKOUT = "not a git checkout"
"""The commit of code that lies outside a clone, or on a machine without git."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The code, the machine and the command that a result comes from, as the measurement began.

    ``commit`` has 12 digits, or is NO_CHECKOUT; ``is_clean`` says whether the tree was as
    committed, results apart, and is None without a checkout. ``date`` is UTC in ISO 8601.
    ``core_count`` counts the cores that the process may use. ``huge_page_count`` and
    ``huge_page_overcommit_count`` are what the administrator has configured, in pages of
    ``vm.nr_hugepages`` and ``vm.nr_overcommit_hugepages``. ``libraries`` has the version of
    each library that is installed and may change a figure.
    """

    command: str
    commit: str
    is_clean: bool | None
    date: str
    kernel: str
    core_count: int
    memory_bytes: int
    huge_page_count: int
    huge_page_overcommit_count: int
    python: str
    libraries: Mapping[str, str]

    def to_document(self) -> dict[str, Any]:
        """The fields as they stand in a result file, at its top."""
        return {**asdict(self), "libraries": dict(self.libraries)}
