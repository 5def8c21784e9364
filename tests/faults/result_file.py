"""Where a run of the labs leaves what it found: a file that says how and from what it came."""

import json
from collections.abc import Mapping
from pathlib import Path

from kvstored.evidence import gather_provenance, started_as


def write_result(path: Path | None, values: Mapping[str, object]) -> None:
    """Writes ``values`` as JSON to ``path``, if there is one, after their provenance.

    Makes its folder.
    """
    if path is None:
        return
    document = {**PROVENANCE.to_document(), **values}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{json.dumps(document, indent=2)}\n")


PROVENANCE = gather_provenance(started_as())
"""As the run began: it may take hours."""
