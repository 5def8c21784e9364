"""How long a store has taken lately until it answered. Pure."""

from collections import deque

ANSWERS_REMEMBERED = 8
ANSWER_MARGIN = 2.0
"""The next answer may take so many times as long as the slowest that is remembered."""
ANSWER_SHARE = 0.1
"""Of computing everything: the longest wait for an answer, however slow the last ones were."""


class AnswerTimes:
    """Seconds for which loads were waited for until their first bytes came, of the last ones.

    So a store is not given up for being as slow as it lately was. A load that was given up tells
    nothing, so from one load to the next the wait at most grows by ``ANSWER_MARGIN``; after it the
    store has to show again how long it takes. Not thread-safe.
    """

    __slots__ = ("_answers_s",)

    def __init__(self) -> None:
        self._answers_s: deque[float] = deque(maxlen=ANSWERS_REMEMBERED)

    def add(self, answer_s: float) -> None:
        """The first bytes of a load came after so long a wait."""
        self._answers_s.append(answer_s)

    def forget(self) -> None:
        """A load was given up."""
        self._answers_s.clear()

    def wait_s(self, compute_s: float) -> float:
        """Seconds for which an answer is worth waiting, before ``compute_s`` of computing.

        0 while the store has not answered.
        """
        slowest_s = max(self._answers_s, default=0.0)
        return min(ANSWER_MARGIN * slowest_s, ANSWER_SHARE * compute_s)
