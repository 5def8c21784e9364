"""The demo's conversation that outgrows its window, and what it calls a failure."""

from dataclasses import replace

import pytest
from rich.console import Console

from examples.conversation.overflow import Overflow, ToldTurn, converse, faults
from examples.conversation.overflow_display import make_text, make_window_table
from examples.conversation.script import KILLED_BEFORE, SAYINGS
from kvstored_client.testing import MemoryClient, MemoryStore

GOOD = ToldTurn(
    number=2,
    text="Which [one]?",
    answer="This [one].",
    expected="",
    history_tokens=10,
    dropped_tokens=4,
    restored_tokens=9,
    computed_tokens=5,
    tokens_equal=True,
)
FIRST = replace(GOOD, number=1, restored_tokens=0, dropped_tokens=0)
LAST = replace(GOOD, number=3, dropped_tokens=0)


def overflow_of(*turns: ToldTurn) -> Overflow:
    return Overflow(window_tokens=16, turns=turns)


def text_of(overflow: Overflow) -> str:
    console = Console(width=200, record=True)
    console.print(make_text(overflow))
    return console.export_text()


def test_the_conversation_goes_on_where_a_kept_cache_would() -> None:
    store = MemoryStore()
    overflow = converse(SAYINGS, lambda number: MemoryClient(store))
    assert faults(overflow) == []
    turns = overflow.turns
    assert [turn.text for turn in turns] == [saying.text.strip() for saying in SAYINGS]
    dropped = [turn.dropped_tokens for turn in turns]
    assert sum(map(bool, dropped)) == 2, "each half of the script overflows the window once"
    assert dropped[-1] == 0
    last = turns[-1]
    assert last.restored_tokens <= last.history_tokens - sum(dropped) < overflow.window_tokens
    # Nothing that the store has is computed again, but for the token that was only sampled.
    assert last.computed_tokens < overflow.window_tokens // 2
    assert [turn.answer for turn in turns if turn.expected] == [
        saying.expected for saying in SAYINGS if saying.expected
    ]


def test_a_conversation_that_lost_its_states_is_named() -> None:
    """Each turn finds a store that has nothing: it is the first one, again and again."""
    overflow = converse(SAYINGS[1:3], lambda number: MemoryClient(MemoryStore()))
    found = faults(overflow)
    assert any("turn 2 of the long conversation restored nothing" in fault for fault in found)


@pytest.mark.parametrize(
    ("turns", "fault"),
    [
        ((FIRST, GOOD, LAST), None),
        ((FIRST, replace(GOOD, tokens_equal=False), LAST), "turn 2 of the long conversation gen"),
        ((FIRST, replace(GOOD, restored_tokens=0), LAST), "turn 2 of the long conversation res"),
        ((FIRST, replace(GOOD, dropped_tokens=0), LAST), "did not go on"),
        ((FIRST, GOOD), "did not go on"),
    ],
)
def test_every_fault_is_a_sentence(turns: tuple[ToldTurn, ...], fault: str | None) -> None:
    found = faults(overflow_of(*turns))
    assert len(found) == (fault is not None)
    assert (fault or "") in "".join(found)


def test_what_was_said_is_shown_as_it_is() -> None:
    """Brackets are no markup."""
    said = text_of(overflow_of(FIRST, GOOD, LAST))
    assert said.count("Which [one]?") == said.count("This [one].") == 3
    assert said.count("its first 4 were dropped") == 1
    assert "killed" not in said
    assert "killed" in text_of(overflow_of(replace(GOOD, number=KILLED_BEFORE)))


@pytest.mark.parametrize(("expected", "shown"), [("This [one].", "(right)"), ("x", "would be: x")])
def test_an_answer_that_can_be_wrong_is_judged(expected: str, shown: str) -> None:
    assert shown in text_of(overflow_of(replace(GOOD, expected=expected)))


def test_the_table_has_a_row_for_each_turn() -> None:
    table = make_window_table(overflow_of(FIRST, GOOD, replace(LAST, tokens_equal=False)))
    cells = [list(column.cells) for column in table.columns]
    assert cells[2:4] == [["0", "4", "0"], ["0", "9", "9"]]
    assert cells[-1] == ["yes", "yes", "NO"]
