import os

import numpy as np
import pytest
import torch

from kvstored_client.session.arena import Arena, ArenaSizeError, map_arena
from kvstored_client.verbs.placement import Placement
from kvstored_contract.layout import StateLayout

PAGE = 4096


def arena(pages: int = 4, *, alive: bool = True) -> Arena:
    return Arena(memoryview(bytearray(pages * PAGE)), lambda: alive)


def test_arrays_and_tensors_alias_the_region() -> None:
    region = arena().allocate(PAGE)
    assert region is not None
    region.numpy(np.int32, (2, 3), offset=8)[:] = 7
    tensor = region.tensor(torch.int32, (3, 2), offset=8)
    assert tensor.tolist() == [[7, 7]] * 3
    tensor[0, 0] = 9
    assert region.view[8] == 9
    assert region.tensor(torch.bfloat16, (0, 4)).shape == (0, 4)


@pytest.mark.parametrize(
    ("shape", "offset"), [((PAGE + 1,), 0), ((1,), PAGE), ((1,), -1), ((-1,), 0)]
)
def test_what_does_not_fit_is_refused(shape: tuple[int, ...], offset: int) -> None:
    region = arena().allocate(PAGE)
    assert region is not None
    with pytest.raises(ValueError, match="do not fit into a region of 4096 bytes"):
        region.numpy(np.uint8, shape, offset)


def test_a_released_region_is_gone_and_its_bytes_are_free() -> None:
    memory = arena(2)
    region = memory.allocate(10)
    assert region is not None
    assert region.is_current
    assert memory.allocate(1) is None
    with region:
        assert len(region.view) == 10
    region.release()
    assert not region.is_current
    with pytest.raises(ValueError, match="was released"):
        _ = region.view
    assert memory.free_bytes == 2 * PAGE


def test_a_region_of_a_dead_session_is_not_current() -> None:
    region = arena(alive=False).allocate(1)
    assert region is not None
    assert not region.is_current


def test_a_descriptor_that_is_too_short_is_not_mapped() -> None:
    descriptor = os.memfd_create("arena")
    try:
        os.ftruncate(descriptor, PAGE)
        assert len(map_arena(descriptor, PAGE)) == PAGE
        with pytest.raises(ArenaSizeError, match="holds 4096 bytes, not the announced 8192"):
            map_arena(descriptor, 2 * PAGE)
        with pytest.raises(ArenaSizeError):
            map_arena(descriptor, 0)
    finally:
        os.close(descriptor)


def test_a_contiguous_placement_puts_the_layers_of_a_chunk_together(layout: StateLayout) -> None:
    memory = arena(12)
    memory.allocate(PAGE)
    region = memory.allocate(Placement.contiguous_bytes(layout, 1))
    assert region is not None
    assert region.byte_count == 3 * 8192
    assert Placement.contiguous(region, layout) == Placement(
        regions=(region,), base=PAGE, layer_stride=8192, chunk_stride=3 * 8192
    )
    assert Placement.contiguous(region, layout, 2).chunk_stride == 2 * 8192
    assert Placement.contiguous_bytes(layout, 5, 2) == 5 * 2 * 8192
