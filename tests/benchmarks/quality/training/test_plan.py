"""How the shipped model is trained."""

from benchmarks.quality.model import WINDOW_TOKENS
from benchmarks.quality.records import RECORD_TOKENS, WORDS_MAX
from benchmarks.quality.training.plan import CURRICULUM


def test_sequences_become_longer_and_end_at_the_window_twice() -> None:
    lengths = [stage.batch.position_count for stage in CURRICULUM]
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == 2 * WINDOW_TOKENS
    for stage in CURRICULUM:
        # Every record can come, and be asked for.
        assert 2 * stage.batch.record_count * RECORD_TOKENS <= stage.batch.position_count
        assert 2 * stage.batch.record_count <= WORDS_MAX
