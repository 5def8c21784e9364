import pytest

from benchmarks.scratch import SCRATCH_BYTES_MAX
from benchmarks.storage.clients import FIGURES
from benchmarks.storage.scale import FULL, QUICK, Scale
from benchmarks.workload import GIB, KIB, MIB


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_both_scales_keep_what_the_figures_promise(scale: Scale) -> None:
    assert scale.rounds.count_min >= 7
    assert scale.scratch_bytes < SCRATCH_BYTES_MAX
    assert all(f"clients{scale.client_count}_" in figure for figure in FIGURES)
    assert scale.call_workload(256 * KIB).chunk_bytes == 8 * MIB
    assert scale.call_workload(MIB).chunk_bytes == 32 * MIB
    assert {scale.curve_slices[0], scale.curve_slices[-1]} == {16 * KIB, 4 * MIB}


def test_the_full_scale_measures_what_is_asked_for() -> None:
    assert FULL.call_bytes >= GIB
    assert FULL.slow_rounds.count_min >= 7
    assert FULL.get_chunks >= 100
    assert FULL.get_chunks * FULL.rounds.count_min >= 500
