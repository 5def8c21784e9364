"""Whether a difference between two servers is the store's, or that of a tie."""

from dataclasses import replace

from engine_adapters.vllm.testing.agreement import TIE, Agreement, Reply, agreement

PLAIN = Reply(
    text="a b c",
    tokens=("a", "b", "c"),
    seconds=("x", "x", "x"),
    margins=(1.0, TIE / 10, 0.5),
    prompt_tokens=10,
    cached_tokens=0,
)
TIED = replace(
    PLAIN,
    text="a x y",
    tokens=("a", "x", "y"),
    seconds=("x", "b", "z"),
    margins=(1.0, TIE / 5, 0.7),
)
"""Goes another way where both were as good."""
SAID = [[PLAIN, PLAIN], [PLAIN, PLAIN]]
EQUAL = Agreement(is_equal=True, ties=0)


def with_tokens(*tokens: str) -> Reply:
    return replace(PLAIN, text=" ".join(tokens), tokens=tokens)


def test_the_same_tokens_are_equal() -> None:
    assert agreement(SAID, [[with_tokens("a", "b", "c")] * 2] * 2) == EQUAL


def test_another_token_is_a_difference() -> None:
    shorter = replace(PLAIN, tokens=("a",))
    for other in (with_tokens("x", "b", "c"), with_tokens("a", "b", "x"), shorter):
        assert not agreement(SAID, [[PLAIN, PLAIN], [PLAIN, other]]).is_equal
        assert not agreement(SAID, [[other, PLAIN], [PLAIN, PLAIN]]).is_equal


def test_two_runs_go_apart_at_a_tie() -> None:
    """Twenty conversations with vLLM's server: one token of 480 was 1.4e-6 ahead of the next."""
    found = agreement(SAID, [[TIED, with_tokens("x", "y", "z")], [PLAIN, PLAIN]])
    assert found == Agreement(is_equal=True, ties=1)


def test_both_have_to_know_of_a_tie() -> None:
    sure = replace(TIED, margins=(1.0, 0.5, 0.5))
    third = replace(TIED, tokens=("a", "w", "y"))
    other_second = replace(TIED, seconds=("x", "w", "z"))
    for other in (sure, third, other_second):
        assert not agreement(SAID, [[other, PLAIN], [PLAIN, PLAIN]]).is_equal


def test_a_tie_in_one_conversation_hides_no_difference_in_another() -> None:
    found = agreement(SAID, [[TIED, PLAIN], [PLAIN, with_tokens(*"xbc")]])
    assert found == Agreement(is_equal=False, ties=1)
