from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack


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
