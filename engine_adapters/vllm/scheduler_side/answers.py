"""What the store has of each request that waits: asked once for each admission."""

import time

from engine_adapters.vllm.scheduler_side.found import Found, Question
from engine_adapters.vllm.scheduler_side.link_question import LinkQuestion
from engine_adapters.vllm.scheduler_side.lookup import Lookup
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack
from engine_adapters.vllm.scheduler_side.step_budget import StepBudget
from engine_adapters.vllm.scheduler_side.telling import Telling


class Answers:
    """Asks for requests, and waits for answers; tracks hold both until they are used.

    Belongs to the scheduler's thread, which waits for all of them together at most ``step_s``
    seconds in a step, however many there are. ``telling`` hears of each answer.
    """

    def __init__(self, lookup: Lookup, telling: Telling, *, step_s: float) -> None:
        self._lookup = lookup
        self._telling = telling
        self._budget = StepBudget(step_s, clock=time.monotonic)

    def begin_step(self) -> None:
        """The next step has its own time to wait."""
        self._budget.begin_step()

    def ask(self, track: RequestTrack) -> Question:
        """Asks the store; returns at once."""
        track.tried_admission = track.request.num_preemptions
        # The chain is the look-up's until it answers.
        chain, track.chain = track.chain, None
        token_ids = list(track.request.all_token_ids)
        if track.linking is None:
            track.question = self._lookup.ask(track.identity, token_ids, chain=chain)
        else:
            entries = track.linking.request.entries
            track.question = LinkQuestion(
                [
                    self._lookup.ask(track.identity, token_ids[entry.start : entry.stop])
                    for entry in entries
                ]
            )
        return track.question

    def get(self, track: RequestTrack) -> Found | None:
        """What the store has; nothing while a load runs or was tried; None while unknown."""
        if track.found is not None:
            return track.found
        question = track.question
        if question is None:
            if track.tried_admission == track.request.num_preemptions:
                return Found()
            question = self.ask(track)
        found = self._budget.spend(question.result)
        if found is None:
            return None
        track.question = None
        if isinstance(question, LinkQuestion):
            for late in question.late(found):
                self._lookup.drop(late)
        elif found.chain is None:
            # The deadline is over. What still comes has leases.
            self._lookup.drop(question)
        track.chain = found.chain
        track.found = found
        if track.linking is None:
            track.saved_chunks = max(track.saved_chunks, found.chunk_count)
            self._telling.show(track, found)
        return found

    def has(self, track: RequestTrack) -> bool:
        """Whether the keys are known, or that there are none; a request may run before that.

        It does when it is not allowed to read. What is complete by then is saved later.
        """
        if track.chain is None and self.get(track) is None:
            return False
        self.forget(track)
        return True

    def take(self, track: RequestTrack) -> Found | None:
        """The answer, whose leases are the caller's from now on; None if there is none."""
        found, track.found = track.found, None
        return found

    def forget(self, track: RequestTrack) -> None:
        """The answer is not needed any more."""
        if (found := self.take(track)) is not None:
            self._lookup.release(found)

    def drop(self, track: RequestTrack) -> None:
        """The request has ended: neither is its question."""
        self.forget(track)
        if track.question is not None:
            self._lookup.drop(track.question)
