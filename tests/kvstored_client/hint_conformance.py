"""Queues of every store: the same tests for a real daemon and for one in memory."""

from collections.abc import Callable

import pytest

from kvstored_client import (
    Client,
    HintReport,
    LayoutRefusedError,
    LimitExceededError,
    QueueEntry,
    RequestInvalidError,
)
from kvstored_contract.limits import WAITING_PER_SESSION_MAX
from tests.support.rows import MIXED

Connect = Callable[..., Client]
KEY = bytes(32)


def entry(name: str, place: int = 1) -> QueueEntry:
    return QueueEntry(name=name, place=place, keys=[KEY], layout=MIXED)


class HintConformance:
    """A change of the queue is taken after the one before it, or is answered as outdated."""

    def test_changes_of_a_queue_follow_each_other(self, client: Client) -> None:
        hint = client.sequences.hint
        assert hint([entry("a"), entry("b", 2)], version=3) == HintReport(True, 3)
        assert hint([entry("c", 3)], ["a"], version=4, previous_version=3) == HintReport(True, 4)
        assert hint([entry("d")], version=4, previous_version=3) == HintReport(False, 4)
        assert hint([entry("d")], version=9, previous_version=7) == HintReport(False, 4)
        assert hint([entry("d")], version=3) == HintReport(False, 4)
        assert hint([entry("d")], version=9) == HintReport(True, 9)

    def test_a_sequence_waits_by_its_name(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        entries = [QueueEntry(name=name, place=1), QueueEntry(name=f"{name}?", place=2)]
        report = client.sequences.hint(entries, version=1)
        assert report == HintReport(True, 1, (f"{name}?",))

    def test_a_queue_belongs_to_its_session(self, client: Client, connect: Connect) -> None:
        client.sequences.hint([entry("a")], version=7)
        assert connect().sequences.hint([entry("a")], version=1) == HintReport(True, 1)

    def test_no_more_than_a_queue_may_have_wait(self, client: Client) -> None:
        names = [f"{number}" for number in range(WAITING_PER_SESSION_MAX)]
        entries = [QueueEntry(name=each, place=1, keys=[KEY], layout=MIXED) for each in names]
        assert client.sequences.hint(entries, version=1) == HintReport(True, 1)
        report = client.sequences.hint([entry("more")], version=2, previous_version=1)
        assert report == HintReport(True, 2, ("more",))
        report = client.sequences.hint([entry("more")], ["0"], version=3, previous_version=2)
        assert report == HintReport(True, 3)
        with pytest.raises(LimitExceededError):
            client.sequences.hint([*entries, entry("more")], version=4)

    def test_hints_that_cannot_be_are_refused(self, client: Client) -> None:
        calls: list[Callable[[], object]] = [
            lambda: client.sequences.hint([], version=0),
            lambda: client.sequences.hint([], version=1, previous_version=1),
            lambda: client.sequences.hint([], ["x" * 300], version=1),
        ]
        for call in calls:
            with pytest.raises(RequestInvalidError):
                call()
        with pytest.raises(LayoutRefusedError):
            client.sequences.hint([QueueEntry(name="a", place=1, keys=[KEY])], version=1)
