"""The documents of this repository quote results, and say which commit each measured."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quotes import wrong_excerpts, wrong_quotes
from benchmarks.results.result import FOLDER
from benchmarks.tables import filled
from kvstored.evidence.checkout import ROOT, commit_of_tree, git

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def read(name: str) -> dict[str, Any]:
    results = json.loads((FOLDER / f"{name}.json").read_text())
    assert isinstance(results, dict)
    return results


@each_document
def test_every_figure_is_in_the_result_that_it_is_quoted_from(document: Path) -> None:
    text = document.read_text()
    assert wrong_quotes(text, read) == []
    assert wrong_excerpts(text, lambda name: (FOLDER / name).read_text()) == []


@each_document
def test_tables_and_ages_are_those_of_the_results(document: Path) -> None:
    """Fails after a new result until ``python -m benchmarks.tables`` has written the documents."""
    if commit_of_tree() is None or git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("only a whole clone tells which commit brought a result")
    text = document.read_text()
    assert filled(text, FOLDER) == text


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.txt")))
def test_a_text_is_of_the_run_of_its_result(name: str) -> None:
    """Bug: a new result lay beside the text of the run before it, and pages led to both."""
    figures = read(name).get("figures", {})
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        words = line.split()
        if words and isinstance(value := figures.get(words[0]), float):
            assert f"{value:.3f}" in words, (line, value)


def test_performance_shows_its_tables() -> None:
    assert "<!-- results" in (ROOT / "docs" / "performance.md").read_text()


@each_document
def test_every_picture_of_a_result_is_there(document: Path) -> None:
    for name in re.findall(r"results/(\w+\.png)", document.read_text()):
        assert (FOLDER / name).is_file(), name


def test_commands_of_results_can_be_repeated_anywhere() -> None:
    """Bug: one wrote its result into a folder of the machine that made it."""
    commands = {path.name: read(path.stem).get("command", "") for path in FOLDER.glob("*.json")}
    assert {name: said for name, said in commands.items() if re.search(r"(^|[ =])/", said)} == {}
