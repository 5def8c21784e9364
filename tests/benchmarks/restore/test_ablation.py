import pytest

from benchmarks.restore.ablation import in_whole_matrices, layer_wise, token_wise
from benchmarks.restore.calibration import profile_of
from benchmarks.restore.platforms import A100
from benchmarks.restore.shapes import LLAMA_13B


def test_matrices_are_computed_whole_and_bytes_are_not_padded() -> None:
    profile = profile_of(A100, LLAMA_13B)
    padded = in_whole_matrices(profile, 257)
    assert padded.project_s == profile.costs(512).project_s
    assert padded.compute_s == profile.costs(512).compute_s
    assert padded.io_hidden_s == profile.costs(257).io_hidden_s
    assert in_whole_matrices(profile, 512) == profile.costs(512)


def test_the_papers_tokens_are_slower_than_layers_and_rounding_helps() -> None:
    schedule, seconds = layer_wise()
    assert str(schedule) == "30 H + 10 RE"
    assert seconds > 0
    ours, exact, rounded = token_wise()
    assert (exact.partition.hidden_count, rounded.partition.hidden_count) == (794, 768)
    assert exact.slower == pytest.approx(1.12, rel=0.03)
    assert rounded.slower < exact.slower
    assert ours.printed is None
