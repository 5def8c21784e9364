"""Tables and links of documents are written from results."""

import json
from pathlib import Path

from benchmarks.tables import filled, main

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
        "a\n<!-- results one noise_* -->\n\nMade by `python -m benchmarks one`, commit unknown:\n\n"
        "| | value | median | min | max | samples |\n|---|---|---|---|---|---|\n"
        "| **`speed`** | 3.000 | 2.000 | 1.000 | 9.000 | 3 |\n"
        "| `noise_b` |  | 1.000 | 1.000 | 1.000 | 1 |\n"
        "\n<!-- end -->\nb\n"
    )
    assert filled(document.read_text(), tmp_path / "results") == document.read_text()


def test_a_link_to_a_result_says_what_it_measured(tmp_path: Path) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    measured = {**RESULTS, "commit": "0123456789ab", "is_clean": False}
    (tmp_path / "docs" / "results" / "one.json").write_text(json.dumps(measured))
    document = tmp_path / "README.md"
    document.write_text("see [it](docs/results/one.txt)\n<!-- results one -->\n<!-- end -->\n")
    main([str(document)])
    text = document.read_text()
    assert "see [one.txt, commit 0123456789ab, not clean](docs/results/one.txt)\n" in text
    assert "Made by `python -m benchmarks one`, commit 0123456789ab, not clean:" in text
    main([str(document)])
    assert document.read_text() == text


def test_a_quick_run_is_told(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps({**RESULTS, "quick": True}))
    text = filled("<!-- results one -->\n<!-- end -->\n", tmp_path)
    assert "Made by `python -m benchmarks one`, commit unknown, quick:" in text
