"""Every result says which code, machine and command it comes from."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from benchmarks.results.result import FOLDER
from kvstored.evidence import Provenance
from tests.tidy import exceptions
from tests.tidy.shrinking import strays

FIELDS = {field.name for field in fields(Provenance)}


def is_told(document: Mapping[str, Any]) -> bool:
    return document.keys() >= FIELDS


def test_a_result_that_leaves_something_out_is_found() -> None:
    whole = dict.fromkeys(FIELDS)
    assert is_told({**whole, "samples": {}})
    assert not any(is_told({key: None for key in whole if key != name}) for name in FIELDS)


def test_every_result_says_where_it_comes_from() -> None:
    paths = sorted(FOLDER.glob("*.json"))
    without = {path.name for path in paths if not is_told(json.loads(path.read_text()))}
    assert strays(without, exceptions.WITHOUT_PROVENANCE) == []
