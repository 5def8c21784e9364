"""The tables of documents, and that those in the repository show the results beside them."""

import json
from pathlib import Path

import pytest

from benchmarks.tables import filled, main

DOCUMENTS = (Path(__file__).parents[2] / "docs" / "performance.md",)
RESULTS = {
    "command": "python -m benchmarks one",
    "figures": {"speed": 3.0},
    "samples": {"noise_b": [1.0], "speed": [1.0, 2.0, 9.0], "other": [5.0]},
}


def test_figures_come_first_and_of_the_rest_what_matches(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "one.json").write_text(json.dumps(RESULTS))
    document = tmp_path / "document.md"
    document.write_text("a\n<!-- results one noise_* -->\nold\n<!-- end -->\nb\n")
    main([str(document)])
    assert document.read_text() == (
        "a\n<!-- results one noise_* -->\n\nMade by `python -m benchmarks one`:\n\n"
        "| | value | median | min | max | samples |\n|---|---|---|---|---|---|\n"
        "| **`speed`** | 3.000 | 2.000 | 1.000 | 9.000 | 3 |\n"
        "| `noise_b` |  | 1.000 | 1.000 | 1.000 | 1 |\n"
        "\n<!-- end -->\nb\n"
    )
    assert filled(document.read_text(), tmp_path / "results") == document.read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_show_the_results_beside_them(document: Path) -> None:
    text = document.read_text()
    assert "<!-- results" in text
    assert filled(text, document.parent / "results") == text
