"""``python -m benchmarks results``: every result with its age, as a table and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.results.result import Result, read_results
from kvstored.evidence import Provenance

_CAPTION = (
    "in: the file says no commit; this one brought it, what it measured may be older, and whether "
    "its tree was clean is not known (?). from: the commit that was measured is not in this "
    "clone, so changes count from that one."
)


def list_results(console: Console, file: Path | None, provenance: Provenance) -> None:
    """Prints the table; writes the list to ``file``, if there is one. Raises BenchmarkError."""
    results = read_results()
    console.print(results_table(results))
    if file is not None:
        document = results_document(results, provenance)
        file.write_text(f"{json.dumps(document, indent=2)}\n")


def results_table(results: Sequence[Result]) -> Table:
    """One row for each result."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", caption=_CAPTION, caption_justify="left"
    )
    table.add_column("result", no_wrap=True)
    for name in ("files", "measures", "commit", "clean", "date"):
        table.add_column(name, overflow="fold")
    for name in ("commits since", "files changed"):
        table.add_column(name, justify="right")
    for result in results:
        changes = result.changes
        table.add_row(
            Path(result.file).stem,
            " ".join(_suffixes(result)),
            " ".join((result.program, *result.parts)),
            _commit(result),
            {True: "yes", False: "no", None: "?"}[result.age.is_clean],
            "not known" if result.age.date is None else result.age.date[:10],
            "not known" if changes is None else str(changes.commit_count),
            "not known" if changes is None else str(changes.file_count),
        )
    return table


def _commit(result: Result) -> str:
    """The one that was measured; where changes count from another, that one as well."""
    measured = result.age.measured
    if measured is None:
        return "not known" if result.since is None else f"in {result.since}"
    is_here = result.since in {measured, None}
    return measured if is_here else f"{measured} from {result.since}"


def _suffixes(result: Result) -> list[str]:
    """Of all its files, pictures with their number: ``json txt 2 png``."""
    suffixes = [Path(name).suffix.removeprefix(".") for name in (result.file, *result.beside)]
    counts = {suffix: suffixes.count(suffix) for suffix in suffixes}
    return [suffix if count == 1 else f"{count} {suffix}" for suffix, count in counts.items()]


def results_document(results: Sequence[Result], provenance: Provenance) -> dict[str, Any]:
    """The list and where it comes from."""
    return {**provenance.to_document(), "results": [asdict(result) for result in results]}
