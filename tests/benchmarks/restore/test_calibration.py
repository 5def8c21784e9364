"""The factors reproduce the sentences of the paper that they were derived from."""

import pytest

from benchmarks.restore.calibration import balance_bytes_per_s, profile_of
from benchmarks.restore.overlap import OVERLAP_EFFICIENCY, duration_s
from benchmarks.restore.platforms import A30, A100
from benchmarks.restore.shapes import LLAMA_7B, LLAMA_13B, OPT_30B, ModelShape
from engine_adapters.restore import LayerSchedule, Mode, Source, predict_s, schedule_for


def test_reading_and_projecting_balance_where_the_paper_says() -> None:
    assert balance_bytes_per_s(LLAMA_7B) == pytest.approx(24e9)
    assert balance_bytes_per_s(LLAMA_13B) == pytest.approx(21e9)
    assert balance_bytes_per_s(OPT_30B) != pytest.approx(37e9, rel=0.5)


def test_recomputing_7b_loses_28_percent_from_1k_to_16k() -> None:
    profile = profile_of(A100, LLAMA_7B)
    speeds = [count / profile.costs(count).compute_s for count in (1024, 16384)]
    assert speeds[1] / speeds[0] == pytest.approx(0.72)


def test_13b_gains_1_66_over_kv_on_an_a100() -> None:
    costs = profile_of(A100, LLAMA_13B).costs(1024)
    hcache_s, kv_s = (
        duration_s(schedule_for(mode, costs, 40), costs) for mode in (Mode.HCACHE, Mode.KV)
    )
    assert kv_s / hcache_s == pytest.approx(1.66)
    assert 0.9 < OVERLAP_EFFICIENCY < 1


@pytest.mark.parametrize(
    ("parts", "slowed"),
    [
        (((Source.KV, 4),), 1.0),
        (((Source.COMPUTE, 4),), 1.0),
        (((Source.HIDDEN, 4),), OVERLAP_EFFICIENCY),
        (((Source.COMPUTE, 1), (Source.KV, 3)), OVERLAP_EFFICIENCY),
    ],
)
def test_only_what_reads_and_computes_is_slowed(
    parts: tuple[tuple[Source, int], ...], slowed: float
) -> None:
    costs = profile_of(A100, LLAMA_7B).costs(1024)
    schedule = LayerSchedule.of(*parts)
    assert duration_s(schedule, costs) == predict_s(schedule, costs) / slowed


def test_costs_are_those_of_section_3_2() -> None:
    """Projecting is a sixth of computing but for attention; keys and values are twice as large."""
    costs = profile_of(A30, LLAMA_7B).costs(1)
    assert costs.compute_s / costs.project_s == pytest.approx(6, rel=1e-3)
    assert costs.io_kv_s == 2 * costs.io_hidden_s
    slower = profile_of(A100, LLAMA_7B).costs(1)
    assert costs.compute_s / slower.compute_s == pytest.approx(312 / 165)


def test_grouped_heads_make_projecting_and_loading_cheaper() -> None:
    whole, grouped = (
        profile_of(A100, ModelShape(name="m", layer_count=8, hidden_size=512, kv_size=size)).costs(
            9
        )
        for size in (512, 128)
    )
    assert grouped.project_s == pytest.approx(whole.project_s / 4)
    assert grouped.io_kv_s == whole.io_kv_s / 4 < grouped.io_hidden_s == whole.io_hidden_s
    assert grouped.compute_s < whole.compute_s


def test_more_gpus_are_that_many_times_as_fast() -> None:
    one, four = (
        profile_of(
            A100,
            ModelShape(name="m", layer_count=8, hidden_size=512, kv_size=512, gpu_count=count),
        ).costs(64)
        for count in (1, 4)
    )
    assert one.project_s == pytest.approx(4 * four.project_s)
    assert one.io_kv_s == pytest.approx(4 * four.io_kv_s)
