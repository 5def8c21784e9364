from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.overtaking import Overtaking
from engine_adapters.vllm.scheduler_side.pace import Pace
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack
from engine_adapters.vllm.scheduler_side.running_load import RunningLoad


def track(saved_chunks: int = 0) -> RequestTrack:
    request: Any = Mock()
    return RequestTrack(
        request=request, identity=RequestIdentity(), chunk_tokens=64, saved_chunks=saved_chunks
    )


def test_complete_chunks_are_saved() -> None:
    assert track().chunks_to_save(computed_tokens=200, known_tokens=1000) == range(3)


def test_saved_chunks_are_left_out() -> None:
    assert track(2).chunks_to_save(computed_tokens=200, known_tokens=1000) == range(2, 3)


def test_token_that_is_being_sampled_completes_nothing() -> None:
    """With two steps in flight a computed token may have no id yet."""
    assert not track().chunks_to_save(computed_tokens=64, known_tokens=63)


def test_nothing_is_saved_behind_what_was_restored() -> None:
    assert not track(10).chunks_to_save(computed_tokens=200, known_tokens=1000)


@pytest.mark.parametrize(("computed_tokens", "is_new"), [(191, False), (192, True)])
def test_a_chunk_is_new_from_its_last_token_on(computed_tokens: int, is_new: bool) -> None:
    assert track(2).has_new_chunk(computed_tokens) is is_new


@pytest.mark.parametrize(("lost", "saved_chunks"), [((5,), 4), ((3, 2), 2)])
def test_lost_chunks_are_worth_saving_again(lost: tuple[int, ...], saved_chunks: int) -> None:
    found = track(4)
    found.lose(lost)
    assert found.saved_chunks == saved_chunks


@pytest.mark.parametrize(
    ("workers_left", "stop_token", "computed_tokens", "is_past"),
    [(0, 128, 128, True), (0, 128, 127, False), (1, 128, 128, False), (0, None, 128, False)],
)
def test_a_load_that_has_ended_matters_until_computing_is_past_it(
    workers_left: int, stop_token: int | None, computed_tokens: int, is_past: bool
) -> None:
    one = track()
    assert not one.is_past_loading(computed_tokens)
    one.load = RunningLoad(
        load_id=1,
        request_id="a",
        found=Found(),
        worker_count=1,
        workers_left=workers_left,
        is_overtaken=True,
    )
    if stop_token is not None:
        one.overtaking = Overtaking(stop_token=stop_token, chunk_tokens=64, pace=Pace())
    assert one.is_past_loading(computed_tokens) is is_past
