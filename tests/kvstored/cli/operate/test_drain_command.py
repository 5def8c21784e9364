"""What a drain says and returns, for all that may have become of it."""

import pytest

from kvstored.cli.operate.drain_command import ERRORS, outcome_of
from kvstored_protos.v1 import admin_pb2

DRAINED = admin_pb2.DrainReply(draining=True)
BEFORE = admin_pb2.StatsReply(counters={ERRORS: 3})
FAILED = admin_pb2.StatsReply(counters={ERRORS: 4})


@pytest.mark.parametrize(
    ("reply", "stats", "is_done", "words"),
    [
        (DRAINED, BEFORE, True, "everything is durable"),
        (admin_pb2.DrainReply(draining=True, write_calls=1), BEFORE, False, "still under way"),
        (admin_pb2.DrainReply(draining=True, staged_chunks=1), BEFORE, False, "still under way"),
        (DRAINED, FAILED, False, "a device failed"),
        (DRAINED, admin_pb2.StatsReply(index_failed=True), False, "the index has failed"),
        (admin_pb2.DrainReply(), BEFORE, False, "ended the drain"),
    ],
)
def test_a_drain_is_done_when_everything_is_durable(
    reply: admin_pb2.DrainReply, stats: admin_pb2.StatsReply, is_done: bool, words: str
) -> None:
    """Bug: one that somebody else ended, and one whose writes had failed, counted as done."""
    outcome = outcome_of(reply, BEFORE, stats, is_resume=False)
    assert outcome.is_done is is_done
    assert words in outcome.title


def test_a_drain_that_was_to_end_is_over() -> None:
    outcome = outcome_of(admin_pb2.DrainReply(), BEFORE, FAILED, is_resume=True)
    assert outcome.is_done
    assert outcome.title == "the daemon takes sessions and writes"
