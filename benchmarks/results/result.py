"""The result files of a folder, each with its age and what changed since."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.benchmark import BenchmarkError
from benchmarks.registry import described_code
from benchmarks.results.age import Age, program_of, said_commit
from benchmarks.results.history import Changes, changes_since, is_known, last_change
from kvstored.evidence.checkout import ROOT

FOLDER = ROOT / "docs" / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One JSON of the folder, and the names of the texts and pictures beside it.

    ``changes`` are those of ``code`` since the commit ``since``: the one that was measured, or,
    where the file says none or this clone has not got it, the one that brought the file. Both
    are None where git cannot tell.
    """

    file: str
    beside: tuple[str, ...]
    program: str
    parts: tuple[str, ...]
    command: str
    age: Age
    code: tuple[str, ...]
    since: str | None
    changes: Changes | None


def read_results(folder: Path = FOLDER, root: Path = ROOT) -> list[Result]:
    """All results of ``folder`` by name; raises BenchmarkError for a file that is none."""
    paths = sorted(folder.iterdir())
    records = [path for path in paths if path.suffix == ".json"]
    owners = {path.name: _owner(path, records) for path in paths}
    return [
        _read(path, tuple(name for name, owner in owners.items() if owner == path), root)
        for path in records
    ]


def age_of(path: Path, root: Path = ROOT) -> Age:
    """The age of one result file; raises OSError, ValueError."""
    return _age(path, json.loads(path.read_text()), root)


def _owner(path: Path, records: Sequence[Path]) -> Path:
    """The JSON that a file belongs to: that whose name its own begins with, the longest."""
    owners = [
        record
        for record in records
        if path.stem == record.stem or path.stem.startswith(f"{record.stem}_")
    ]
    if not owners:
        raise BenchmarkError(f"{path} belongs to no JSON beside it; remove it")
    return max(owners, key=lambda record: len(record.stem))


def _age(path: Path, document: dict[str, Any], root: Path) -> Age:
    measured, is_clean = said_commit(document)
    committed, date = last_change(path, root) or (None, None)
    return Age(
        measured=measured,
        is_clean=is_clean,
        committed=committed,
        date=document.get("date", date),
    )


def _read(path: Path, files: tuple[str, ...], root: Path) -> Result:
    try:
        document = json.loads(path.read_text())
    except ValueError:
        raise BenchmarkError(f"{path} is no JSON; remove it, or measure again") from None
    program, parts = program_of(document), tuple(document.get("parts", ()))
    try:
        code = described_code(program, parts)
    except KeyError:
        raise BenchmarkError(
            f"{path} is of {program}, of which benchmarks/registry.py names no code"
        ) from None
    age = _age(path, document, root)
    since = age.measured if age.measured and is_known(age.measured, root) else age.committed
    return Result(
        file=path.name,
        beside=tuple(name for name in files if name != path.name),
        program=program,
        parts=parts,
        command=document["command"],
        age=age,
        code=code,
        since=since,
        changes=None if since is None else changes_since(since, code, root),
    )
