"""How many files a put, a get and a Cake restore cross, and what the documents say of it."""

import re
from pathlib import Path

import pytest

from tests import hops
from tests.hops import LIMITS, ROOT, Recorder, count, packed, without_small
from tests.support.scale import Scale, at

DOCUMENT = ROOT / "docs/architecture.md"


@at(Scale.QUICK)
def test_no_walk_crosses_more_files_than_before() -> None:
    crossed = count()
    assert {walk: len(files) for walk, files in crossed.items() if len(files) > LIMITS[walk]} == {}
    assert "kvstored/store/write/committer.py" in crossed["put"]
    assert "kvstored/tiers/chunks/promoter.py" in crossed["get"]
    assert "engine_adapters/restore/pointers.py" in crossed["Cake restore"]


def test_the_document_has_the_limits() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    (said,) = re.findall(r"at most this many files: (.*?)\. ", text)
    assert {walk: int(files) for walk, files in re.findall(r"(\w[\w ]*\w) (\d+)", said)} == LIMITS


def test_a_file_counts_while_the_recorder_is_on_and_lies_in_a_folder() -> None:
    recorder = Recorder()
    with recorder.hooked():
        Path("before").with_suffix(".py")
        assert recorder.crossed(("tests",)) == []
        recorder.is_on = True
        _here()
        recorder.is_on = False
    assert recorder.crossed(("tests",)) == ["tests/test_hops.py"]
    assert recorder.crossed(("kvstored",)) == []


def test_files_are_packed_by_folder_and_small_ones_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"a/1.py": 300, "a/2.py": 99, "a/3.py": 100, "a/4.py": 200, "b/5.py": 10}
    monkeypatch.setattr(hops, "line_count", lines.__getitem__)
    assert without_small(list(lines)) == 3
    assert packed(list(lines)) == 3
    lines["a/2.py"] = 301
    assert packed(list(lines)) == 4
    assert without_small(list(lines)) == 4


def _here() -> None:
    pass
