from engine_adapters.vllm.chunk_keys import RequestIdentity
from engine_adapters.vllm.request_track import RequestTrack


def track(saved_chunks: int = 0) -> RequestTrack:
    return RequestTrack(identity=RequestIdentity(), chunk_tokens=64, saved_chunks=saved_chunks)


def test_complete_chunks_are_saved() -> None:
    assert track().chunks_to_save(computed_tokens=200, known_tokens=1000) == range(3)


def test_saved_chunks_are_left_out() -> None:
    assert track(2).chunks_to_save(computed_tokens=200, known_tokens=1000) == range(2, 3)


def test_token_that_is_being_sampled_completes_nothing() -> None:
    """With two steps in flight a computed token may have no id yet."""
    assert not track().chunks_to_save(computed_tokens=64, known_tokens=63)


def test_nothing_is_saved_behind_what_was_restored() -> None:
    assert not track(10).chunks_to_save(computed_tokens=200, known_tokens=1000)
