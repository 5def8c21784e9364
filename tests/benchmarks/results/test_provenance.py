"""Every result says which code, machine and command it comes from."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from benchmarks.results.result import FOLDER
from kvstored.evidence import Provenance
from tests.tidy import exceptions
from tests.tidy.shrinking import strays

FIELDS = {field.name for field in fields(Provenance)}


def is_told(document: Mapping[str, Any]) -> bool:
    """Whether it has everything, and its commit has what was measured."""
    return (
        document.keys() >= FIELDS
        and re.fullmatch("[0-9a-f]{12}", document["commit"]) is not None
        and document["is_clean"] is True
    )


def test_a_result_that_leaves_something_out_is_found() -> None:
    whole = {**dict.fromkeys(FIELDS), "commit": "0123456789ab", "is_clean": True}
    assert is_told({**whole, "samples": {}})
    for name in FIELDS:
        assert not is_told({key: value for key, value in whole.items() if key != name})
    assert not is_told({**whole, "commit": "not a git checkout"})
    assert not is_told({**whole, "is_clean": False})


def test_every_result_says_where_it_comes_from() -> None:
    paths = sorted(FOLDER.glob("*.json"))
    without = {path.name for path in paths if not is_told(json.loads(path.read_text()))}
    assert strays(without, exceptions.WITHOUT_PROVENANCE) == []
