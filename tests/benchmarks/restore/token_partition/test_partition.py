from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.restore.token_partition.partition import TokenPart, TokenPartition, predict_tokens_s
from engine_adapters.restore import (
    CostProfile,
    LayerCosts,
    LayerSchedule,
    Source,
    TokenRange,
    predict_s,
)

PROFILE = CostProfile(
    model="m",
    machine="m",
    measured_at_s=1.0,
    hidden_bytes=2,
    kv_bytes=4,
    compute_token_s=10.0,
    project_token_s=1.0,
    read_bytes_per_s=1.0,
)
"""For each token 2 s to read hidden states, 4 s for keys and values, 10 s to compute."""


def partition(hidden: int, other: int, source: Source = Source.COMPUTE) -> TokenPartition:
    return TokenPartition(hidden_count=hidden, other_count=other, other=source)


def test_the_papers_tokens() -> None:
    """Section 6.3.2: 794 and 230 of 1024 tokens, and 768 as the nearest better size."""
    costs = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=2.309, project_s=6.9 / 21)
    exact = TokenPartition.balanced(costs, 1024)
    assert exact == partition(794, 230)
    for multiple in (64, 128, 256):
        assert exact.rounded(multiple) == partition(768, 256)


@pytest.mark.parametrize(
    ("hidden", "multiple", "rounded"),
    [(31, 64, 0), (32, 64, 64), (95, 64, 64), (96, 64, 100), (100, 1, 100), (70, 3, 69)],
)
def test_rounding_goes_to_the_nearest_multiple_and_never_beyond_all_tokens(
    hidden: int, multiple: int, rounded: int
) -> None:
    assert partition(hidden, 100 - hidden).rounded(multiple) == partition(rounded, 100 - rounded)


def test_parts_lie_in_the_order_of_their_tokens() -> None:
    hidden, kv = partition(30, 70, Source.KV).parts
    assert hidden == (Source.HIDDEN, (0, 30))
    assert kv == (Source.KV, (30, 100))
    computed, hidden = partition(30, 70).parts
    assert computed == (Source.COMPUTE, (0, 70))
    assert hidden == (Source.HIDDEN, (70, 100))
    assert partition(0, 9).parts == ((Source.COMPUTE, (0, 9)),)
    assert partition(9, 0, Source.KV).parts == ((Source.HIDDEN, (0, 9)),)


@pytest.mark.parametrize(
    ("tokens", "chunks"),
    [((0, 30), range(4)), ((30, 100), range(3, 12)), ((32, 40), range(4, 5)), ((98, 99), range(0))],
)
def test_a_part_needs_the_chunks_that_have_tokens_of_it(
    tokens: tuple[int, int], chunks: range
) -> None:
    part = TokenPart(Source.KV, TokenRange(*tokens))
    assert list(part.chunks(8, chunk_count=12)) == list(chunks)


@pytest.mark.parametrize(
    ("stop_chunk", "reached"), [(0, 30), (3, 30), (4, 32), (5, 40), (12, 96), (13, 100), (20, 100)]
)
def test_whole_chunks_reach_so_far(stop_chunk: int, reached: int) -> None:
    part = TokenPart(Source.KV, TokenRange(30, 100))
    assert part.reached(8, stop_chunk=stop_chunk) == reached


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [
        # Each layer: 6 s of reads, 3 s of projections; only the last is not hidden.
        (partition(3, 0), 21.0),
        # Reads 6 s, computation 10 + 3 s a layer.
        (partition(3, 1), 39.0),
        # Reads 10 s a layer, of which 4 s are keys and values.
        (partition(3, 1, Source.KV), 33.0),
        (partition(0, 2), 60.0),
        (partition(0, 2, Source.KV), 24.0),
    ],
)
def test_worked_pipelines(tokens: TokenPartition, seconds: float) -> None:
    assert predict_tokens_s(tokens, layer_count=3, costs_of=PROFILE.costs) == seconds


def test_keys_and_values_are_loaded_behind_their_reads() -> None:
    """Each layer: 10 s of reads, then 3 s of projections and 1.5 s for loading one token."""
    profile = replace(PROFILE, load_token_s=1.5)
    for tokens, seconds in (
        (partition(3, 1, Source.KV), 34.5),
        (partition(0, 2, Source.KV), 27.0),
        (partition(3, 1), 39.0),
    ):
        assert predict_tokens_s(tokens, layer_count=3, costs_of=profile.costs) == seconds


def test_a_projection_that_does_not_shrink_with_its_tokens() -> None:
    tokens = partition(3, 1)
    seconds = predict_tokens_s(
        tokens, layer_count=3, costs_of=PROFILE.costs, project_s=lambda count: 4.0 + 0 * count
    )
    assert seconds == 3 * (10.0 + 4.0)


@given(st.integers(1, 500), st.integers(1, 40))
def test_all_tokens_from_one_source_take_as_long_as_all_layers_from_it(
    token_count: int, layer_count: int
) -> None:
    costs = PROFILE.costs(token_count)
    for tokens, source in (
        (partition(token_count, 0), Source.HIDDEN),
        (partition(0, token_count), Source.COMPUTE),
        (partition(0, token_count, Source.KV), Source.KV),
    ):
        layer_wise_s = predict_s(LayerSchedule.of((source, layer_count)), costs)
        token_wise_s = predict_tokens_s(tokens, layer_count=layer_count, costs_of=PROFILE.costs)
        assert token_wise_s == pytest.approx(layer_wise_s)


def test_what_is_no_partition() -> None:
    for hidden, other in ((-1, 2), (2, -1), (0, 0)):
        with pytest.raises(ValueError, match="are no partition"):
            partition(hidden, other)
    with pytest.raises(ValueError, match="complement of hidden states"):
        partition(1, 1, Source.HIDDEN)
    with pytest.raises(ValueError, match="multiple of 0"):
        partition(1, 1).rounded(0)
