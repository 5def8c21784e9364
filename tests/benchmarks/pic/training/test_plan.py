"""How the model that reads documents is trained."""

from benchmarks.pic.facts.library import JUDGED
from benchmarks.pic.training.plan import CURRICULUM, POSITIONS
from benchmarks.quality.records import WORDS_MAX


def test_sequences_become_longer_and_end_with_what_is_judged() -> None:
    lengths = [stage.batch.position_count for stage in CURRICULUM]
    assert lengths == sorted(set(lengths))
    assert lengths[-1] < POSITIONS
    assert CURRICULUM[-1].batch.library == JUDGED
    for stage in CURRICULUM:
        library = stage.batch.library
        assert 2 * library.word_count <= WORDS_MAX
        # The largest number of documents fits, too.
        assert library.document_counts[-1] * library.document_tokens[0] <= library.token_count


def test_libraries_are_those_of_several_documents_in_a_thousand_tokens() -> None:
    assert (JUDGED.document_counts[0], JUDGED.document_counts[-1]) == (8, 16)
    assert (JUDGED.document_tokens[0], JUDGED.document_tokens[-1]) == (48, 96)
    assert JUDGED.token_count < 1024
