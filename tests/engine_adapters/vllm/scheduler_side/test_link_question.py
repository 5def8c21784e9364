"""Several questions as one."""

from unittest.mock import Mock

from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.link_question import LinkQuestion


def answered(found: Found | None, *, is_cancelled: bool = True) -> Mock:
    return Mock(
        result=Mock(return_value=found),
        cancel=Mock(return_value=is_cancelled),
        when_found=Mock(side_effect=lambda use: use(found)),
    )


def found(count: int) -> Found:
    return Found(chain=Mock(), chunk_count=count, leases=(Mock(),))


def test_the_answer_has_all_leases_and_what_is_of_which_entry() -> None:
    one, none, other = found(2), Found(), found(1)
    answer = LinkQuestion([answered(one), answered(none), answered(other)]).result(0.1)
    assert answer is not None
    assert answer.entries == (one, none, other)
    assert (answer.chain, answer.chunk_count) == (one.chain, 3)
    assert answer.leases == one.leases + other.leases


def test_nothing_is_known_before_the_last_answer() -> None:
    assert LinkQuestion([answered(found(1)), answered(None)]).result(0.0) is None


def test_a_store_that_says_nothing_has_nothing() -> None:
    answer = LinkQuestion([answered(Found()), answered(Found())]).result(0.0)
    assert answer is not None
    assert (answer.chain, answer.leases, len(answer.entries)) == (None, (), 2)


def test_all_are_cancelled_and_each_that_cannot_be_gives_back_its_leases() -> None:
    questions = [answered(found(1), is_cancelled=False), answered(found(2))]
    one = LinkQuestion(questions)
    assert not one.cancel()
    assert all(question.cancel.called for question in questions)
    released: list[Found] = []
    one.when_found(released.append)
    assert [each.chunk_count for each in released] == [1, 2]


def test_those_whose_time_is_over_are_named() -> None:
    """Bug: what came late kept its chunks from eviction for the time of a lease."""
    questions = [answered(found(2)), answered(Found())]
    one = LinkQuestion(questions)
    answer = one.result(0.0)
    assert answer is not None
    assert one.late(answer) == questions[1:]
