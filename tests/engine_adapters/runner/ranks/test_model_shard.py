from itertools import pairwise

import pytest

from engine_adapters.reading.section import Section, sections_of_layers
from engine_adapters.runner.ranks.model_shard import ModelShard, even_share


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 9, 64, 65])
def test_shares_are_one_copy_and_even(count: int, size: int) -> None:
    shares = [even_share(count, rank, size) for rank in range(size)]
    assert [index for share in shares for index in share] == list(range(count))
    assert all(before.stop == after.start for before, after in pairwise(shares))
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) == lengths[0]


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_outside_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank {rank} is not 0 to 2"):
        even_share(5, rank, 3)


def test_shards_cover_the_model_once() -> None:
    cells = []
    for stage in range(3):
        for rank in range(2):
            shard = ModelShard.of_rank(
                layer_count=7,
                kv_head_count=4,
                tensor_rank=rank,
                tensor_size=2,
                stage=stage,
                stage_count=3,
            )
            cells += [(layer, head) for layer in shard.layers for head in shard.heads]
    assert len(cells) == len(set(cells)) == 7 * 4


def test_the_whole_model_is_one_shard() -> None:
    shard = ModelShard.of_rank(layer_count=7, kv_head_count=4, tensor_rank=0, tensor_size=1)
    assert shard == ModelShard(layers=range(7), heads=range(4))


def test_key_heads_are_held_by_several_where_they_are_few() -> None:
    shards = [
        ModelShard.of_rank(layer_count=1, kv_head_count=2, tensor_rank=rank, tensor_size=8)
        for rank in range(8)
    ]
    assert [shard.heads for shard in shards] == [range(1)] * 4 + [range(1, 2)] * 4


@pytest.mark.parametrize(("heads", "size"), [(4, 3), (3, 4), (6, 4)])
def test_heads_that_cannot_be_divided_are_refused(heads: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"{heads} key heads cannot be divided among {size}"):
        ModelShard.of_rank(layer_count=1, kv_head_count=heads, tensor_rank=0, tensor_size=size)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 layers are too few for 3 stages"):
        ModelShard.of_rank(
            layer_count=2, kv_head_count=1, tensor_rank=0, tensor_size=1, stage=0, stage_count=3
        )


def section(first: int, stop: int) -> Section:
    return Section(first_layer=first, layer_count=stop - first, slice_stride=4096 * (1 + first))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (range(10), [(2, 6), (6, 9)]),
        (range(2, 9), [(2, 6), (6, 9)]),
        (range(4), [(2, 4)]),
        (range(3, 5), [(3, 5)]),
        (range(4, 7), [(4, 6), (6, 7)]),
        (range(6, 9), [(6, 9)]),
        (range(2), []),
        (range(9, 12), []),
    ],
)
def test_a_stage_reads_its_layers_only(layers: range, expected: list[tuple[int, int]]) -> None:
    parts = sections_of_layers([section(2, 6), section(6, 9)], layers)
    assert [(part.first_layer, part.stop_layer) for part in parts] == expected
    for part in parts:
        whole = section(2, 6) if part.first_layer < 6 else section(6, 9)
        assert part.slice_stride == whole.slice_stride
