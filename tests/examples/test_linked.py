"""The demo's request of four documents, and what it calls a failure."""

from dataclasses import replace

import pytest
from rich.console import Console

from examples.conversation.linked import (
    DOCUMENTS,
    EXPECTED,
    METHODS,
    ORDER,
    LinkedAnswer,
    LinkedRequest,
    answer,
    faults,
)
from examples.conversation.linked_display import make_documents, make_methods_table
from kvstored_client.testing import MemoryClient, MemoryStore

FULL = LinkedAnswer(
    method="full",
    answer="[right]",
    ttft_s=0.02,
    restored_tokens=0,
    computed_tokens=30,
    is_whole=True,
)
NAIVE = replace(FULL, method="naive", answer="other", restored_tokens=28, computed_tokens=2)
LINKED = replace(FULL, method="attnlink-16", restored_tokens=14, computed_tokens=16)


def request_of(*answers: LinkedAnswer) -> LinkedRequest:
    return LinkedRequest(
        documents=("One [document].",), question=": one", expected="[right]", answers=answers
    )


def text_of(request: LinkedRequest) -> str:
    console = Console(width=200, record=True)
    console.print(make_documents(request))
    console.print(make_methods_table(request))
    return console.export_text()


def test_two_of_four_documents_answer_in_a_new_order() -> None:
    request = answer(MemoryClient(MemoryStore()))
    assert faults(request) == []
    assert sorted(ORDER) == [0, 1, 2, 3] != list(ORDER)
    assert request.documents == tuple(DOCUMENTS[number] for number in ORDER)
    full, naive, linked = request.answers
    assert tuple(each.method for each in request.answers) == METHODS
    assert full.restored_tokens == 0
    assert naive.computed_tokens < linked.computed_tokens < full.computed_tokens
    assert full.answer == linked.answer == EXPECTED


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ((FULL, NAIVE, LINKED), None),
        ((FULL, NAIVE, replace(LINKED, answer="other")), "answer 'other' by attnlink-16, not"),
        ((replace(FULL, answer="other"), NAIVE, LINKED), "answer 'other' by full, not"),
        ((FULL, replace(NAIVE, is_whole=False), LINKED), "by naive neither loaded nor computed"),
    ],
)
def test_every_fault_is_a_sentence(answers: tuple[LinkedAnswer, ...], fault: str | None) -> None:
    found = faults(request_of(*answers))
    assert len(found) == (fault is not None)
    assert (fault or "") in "".join(found)


def test_what_was_asked_is_shown_as_it_is() -> None:
    """Brackets are no markup."""
    text = text_of(request_of(FULL, NAIVE, LINKED))
    assert "document 1 One [document]." in text
    assert ": one  (right would be: [right])" in text
    assert "[right] (right)" in text
    assert "other (wrong)" in text
