"""A document cannot quote a figure that no result has."""

from typing import Any

import pytest

from benchmarks.quotes import Figure, blocks, figures, with_ages, wrong_excerpts, wrong_quotes

MEASURED = {
    "figures": {"speed_max": 9.04},
    "samples": {"speed_max": [1.0, 3.0, 9.04], "late_pct": [0.0123], "b_s": [0.25, 0.75]},
}
COUNTED = {"churn": {"kills": 3000}, "evict": {"kills": 2000}, "broken": [], "is_clean": True}


def read(name: str) -> dict[str, Any]:
    if name == "missing":
        raise FileNotFoundError(2, "No such file", "missing.json")
    return {"one": MEASURED, "kills": COUNTED}[name]


@pytest.mark.parametrize(
    "text",
    [
        "It is 9.0 at most and 3 in the median (`speed_max` of [one](results/one.json)).",
        "Three samples, 3 (`speed_max`), and 1.2 % (`late_pct`), in\n[one](results/one.txt).",
        "0.25 to 0.75 (`*_s`, limit of 0.5): [one](docs/results/one.json)",
        "See table 3 and sections 4.1, 4.2 and 5.6.1 and figures 11 to 13: [one](results/one.json)",
        "It is 9.0 (paper 8.5x, `speed_max`): [one](results/one.json)",
        "9.0 (`speed_max`) with 256 tokens, 40 layers and 1 MiB: [one](results/one.json)",
        "5,000 kills, 3,000 of one kind, 0.005 million: [kills](results/kills.json)",
        "It needs Python >= 3.11 and vLLM 0.32, waits 5 s and has `0.123`, version 0.31.0.",
        "[all](results) of them",
        "![9.9](results/one.png)",
        "```\n9.9 GB/s\n```",
        "<!-- results one -->\n9.9 GB/s\n<!-- end -->",
    ],
)
def test_what_is_measured_or_no_figure_is_right(text: str) -> None:
    assert wrong_quotes(text, read) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("It is 9.1 at most (`speed_max` of [one](results/one.json)).", ["9.1"]),
        ("It is 9.04 at most, [one](results/one.json) says.", ["9.04"]),
        ("It is 9.04 at most (`late_pct` of [one](results/one.json)).", ["9.04"]),
        ("It is 9 (`speed_max`), or 4 s (`b_s`): [one](results/one.json)", ["4"]),
        ("| 1 | `speed_max` of [one](results/one.json) |\n| 9.04 | `speed_max` |", ["9.04"]),
        ("* 3 (`speed_max` of [one](results/one.json))\n* 9.04 (`speed_max`)", ["9.04"]),
        ("3 (`speed_max`, limit 2, 9.5 once): [one](results/one.json)", ["9.5"]),
        ("4,000 kills: [kills](results/kills.json)", ["4,000"]),
        ("It takes 1.5 s, at 3 GB/s, 40 us a call.", ["1.5", "3", "40"]),
        ("It is 14.8x as fast.", ["14.8"]),
    ],
)
def test_what_no_result_has_is_found(text: str, wrong: list[str]) -> None:
    found = wrong_quotes(text, read)
    assert [sentence.split(": ")[-1].split()[0] for sentence in found] == wrong


def test_a_result_cannot_be_named_without_a_link_or_where_it_is_missing() -> None:
    (mentioned,) = wrong_quotes("9 of `results/one.json`", read)
    assert "link one.json" in mentioned
    (missing,) = wrong_quotes("9 in [it](results/missing.json)", read)
    assert missing.endswith("there is no result missing.json")


def test_figures_are_equal_as_they_are_printed() -> None:
    assert Figure(printed="1.5", unit="").equals(1.5499)
    assert not Figure(printed="1.5", unit="").equals(1.5501)
    assert Figure(printed="1.55", unit="million").equals(1_549_969)
    assert not Figure(printed="1.55", unit="million").equals(1_560_000)
    assert Figure(printed="12", unit="%").equals(0.1234)
    assert not Figure(printed="12", unit="s").equals(0.1234)


def test_blocks_are_paragraphs_items_and_rows() -> None:
    text = "# a\nb\nc\n\n* d\n  e\n* f\n| g |\n| h |\n```\nx\n```\ni\n"
    assert blocks(text) == ["# a\nb\nc", "* d\n  e", "* f", "| g |", "| h |", "i"]
    assert [each.printed for each in figures("-3 and 1,234.5 but not p99 or e9")] == [
        "-3",
        "1,234.5",
    ]


def test_ages_replace_the_words_of_links_to_results_only() -> None:
    text = "[a\nb](results/one.txt) ![c](results/two.png) [d](restoring.md)"
    assert with_ages(text, lambda name: f"commit of {name}") == (
        "[one.txt, commit of one](results/one.txt) ![c](results/two.png) [d](restoring.md)"
    )


def test_an_excerpt_has_whole_lines_in_their_order() -> None:
    printed = "head\n  1 2  \n  3 4\n"
    right = "```text docs/results/one.txt\n  1 2\n  3 4\n```\n"
    wrong = "```text results/two.txt\n  1 2\n  3\n```\n"
    assert wrong_excerpts(right, lambda name: printed) == []
    assert wrong_excerpts(right + wrong, lambda name: printed) == ["two.txt"]
    assert wrong_excerpts("```\n5\n```\n", lambda name: printed) == []
