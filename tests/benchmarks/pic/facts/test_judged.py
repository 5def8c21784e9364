"""What answers say of the ways to link."""

import io

import pytest
from rich.console import Console

from benchmarks.pic.facts.judged import FIGURES, Judged
from benchmarks.pic.facts.library import Kind
from benchmarks.pic.facts.ways import WAYS, Answer

ATTENTION = {"naive": [0.1, 0.3], "full": [0.0, 0.01]}


def answers(right: dict[Kind, int], *, of: int = 10, computed_tokens: int = 1) -> list[Answer]:
    """So many of each kind are right."""
    return [
        Answer(
            kind=kind,
            is_right=number < right.get(kind, of),
            ttft_s=0.01,
            computed_tokens=computed_tokens,
        )
        for kind in Kind
        for number in range(of)
    ]


def kinds(one_hop: int, two_hops: int, few_shot: int) -> dict[Kind, int]:
    return {Kind.ONE_HOP: one_hop, Kind.TWO_HOPS: two_hops, Kind.FEW_SHOT: few_shot}


def judged(
    full: dict[Kind, int] | None = None,
    naive: dict[Kind, int] | None = None,
    attention: dict[str, list[float]] | None = None,
) -> Judged:
    found = {way: answers(kinds(8, 6, 7)) for way in WAYS}
    found["full"] = answers(full or kinds(10, 7, 10), computed_tokens=90)
    found["naive"] = answers(naive or kinds(5, 2, 5))
    found["query16"] = answers(kinds(9, 7, 8), computed_tokens=20)
    found["fixed_attnlink16"] = answers(kinds(5, 3, 4))
    return Judged(found, attention or ATTENTION)


def test_every_figure_is_told() -> None:
    series = {one.key: one for one in judged().series()}
    assert {key for key, one in series.items() if one.is_figure} == set(FIGURES)
    values = {key: series[key].value for key in FIGURES}
    assert values["f1_full"] == pytest.approx(0.9)
    assert values["f1_naive"] == pytest.approx(0.4)
    assert values["f1_attnlink16_over_full"] == pytest.approx(0.7 / 0.9)
    assert values["f1_cacheblend15_over_full"] == pytest.approx(0.7 / 0.9)
    assert values["f1_best_at_equal_tokens"] == pytest.approx(0.8)
    assert values["semantic_minus_fixed_points"] == pytest.approx(30.0)
    assert series["judged_full_two_hops_f1"].value == pytest.approx(0.7)
    assert series["judged_full_computed"].value == 90
    assert series["first_token_attention_naive_layer_1"].value == 0.3


def test_a_model_that_answers_nothing_has_figures_too() -> None:
    series = {one.key: one for one in judged(full=kinds(0, 0, 0)).series()}
    assert series["f1_full"].value == series["f1_attnlink16_over_full"].value == 0


def test_the_table_names_the_best_way_and_begins_with_the_least_work() -> None:
    output = io.StringIO()
    Console(file=output, width=200).print(judged().table())
    lines = output.getvalue().splitlines()
    assert "best at equal tokens: query16" in lines[0]
    ways = [line.split()[0] for line in lines[2:]]
    assert set(ways) == set(WAYS)
    assert ways[-1] == "full"


def test_a_model_that_reads_well_and_has_sinks_can_tell() -> None:
    assert judged().untelling() == ""


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (judged(full=kinds(8, 9, 9)), "answers 0.80 of one_hop questions"),
        (judged(full=kinds(9, 5, 9)), "answers 0.50 of two_hops questions"),
        (judged(naive=kinds(9, 7, 8)), "naive links lose 10.0 points, less than 15"),
        (judged(attention={"naive": [0.1], "full": [0.0]}), "draw 0.10 of the attention"),
    ],
)
def test_other_models_cannot(found: Judged, reason: str) -> None:
    assert reason in found.untelling()
