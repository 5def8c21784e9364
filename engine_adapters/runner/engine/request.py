"""One request on its way through the engine, and what comes out of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine_adapters.runner.engine.cut_track import CutTrack
from engine_adapters.runner.engine.layered_prefill import LayeredPrefill
from engine_adapters.runner.engine.linking import LinkTrack
from engine_adapters.runner.engine.restoration import (
    OpenLayers,
    Restoration,
    RestorationState,
    Restorer,
)
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.engine.sampling import Sampler
from engine_adapters.runner.engine.scheduler import Progress, SlotRange
from engine_adapters.runner.model.errors import StepError
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.step import Segment, StateSink
from kvstored_contract.keys import Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A finished request.

    ``computed_tokens`` counts forwarded tokens, generated ones included; the last
    generated token is never forwarded. ``ttft_s`` runs from ``add_request`` to the first
    generated token, restoration included. With an ``error`` the request ended before its
    last token, maybe before its first: then ``ttft_s`` is the time until it ended.

    Of a conversation, the prompt is everything before the answer, dropped tokens included, and
    ``cuts`` are those of this turn.
    """

    request_id: int
    prompt_tokens: int
    token_ids: tuple[int, ...]
    computed_tokens: int
    restore: RestoreReport
    ttft_s: float
    duration_s: float
    error: StepError | None = None
    cuts: tuple[Cut, ...] = ()

    @property
    def generated_ids(self) -> tuple[int, ...]:
        """The tokens behind the prompt."""
        return self.token_ids[self.prompt_tokens :]


TokenWatch = Callable[[int], bool]
"""Hears of each new token id on the engine's thread; True where that one is the last. It neither
waits nor raises."""


@dataclass(frozen=True, slots=True)
class Ending:
    """When a request has its last token: one of ``stop_token_ids``, or the last that may be.

    ``slot_count`` of the cache suffice until then. With a ``watch`` also where that says so.
    """

    stop_token_ids: frozenset[int]
    token_count_max: int
    slot_count: int
    watch: TokenWatch | None = None

    def is_at(self, token_id: int, token_count: int) -> bool:
        """Whether this new token, with which there are so many, is the last one; asked once."""
        is_enough = self.watch is not None and self.watch(token_id)
        is_last = token_id in self.stop_token_ids or token_count == self.token_count_max
        return is_enough or is_last


@dataclass(slots=True)
class Times:
    """When a request was added and had its first token, in seconds of the engine's clock."""

    added_s: float
    first_token_s: float | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """Mutable state of a request inside the engine.

    Invariant: the cache holds the states of ``token_ids[:computed_count]`` in
    ``slots``, and ``computed_count < len(token_ids)`` until the request is finished. Where it
    continues a conversation, these are all tokens that this ever had; the cache holds what
    those of its ``cuts`` that are made have left of them. Of a linked prompt the count is 0 until
    all of its ``link`` is computed.
    """

    request_id: int
    prompt_tokens: int
    token_ids: list[int]
    sampler: Sampler
    ending: Ending
    times: Times
    slots: SlotRange = field(default=SlotRange(0, 0))
    computed_count: int = 0
    restoration: Restoration | None = None
    restore: RestoreReport | None = None
    """What its restoration gave, once that is over."""
    open_layers: OpenLayers | None = None
    """What new tokens may follow now, layer by layer."""
    prefill: LayeredPrefill | None = None
    """Those that do."""
    is_announced: bool = False
    """Whether the sink has heard of it."""
    cuts: CutTrack = field(default_factory=CutTrack)
    link: LinkTrack | None = None

    @property
    def is_restoring(self) -> bool:
        """Whether stored states of it may still be on their way."""
        return self.restoration is not None and self.restore is None

    @property
    def progress(self) -> Progress:
        """What the scheduler sees: no step goes beyond the next cut."""
        return Progress(
            request_id=self.request_id,
            first_slot=self.slots.first,
            token_count=len(self.token_ids),
            computed_count=self.computed_count,
            step_tokens_max=self._step_tokens_max,
            dropped_count=self.cuts.dropped_count,
            groups=() if self.link is None else self.link.groups,
        )

    @property
    def _step_tokens_max(self) -> int | None:
        if self.prefill is not None:
            return 0
        cut = self.cuts.next
        return None if cut is None else cut.first_token - self.computed_count

    def begin_restoring(self, restorer: Restorer | None, cache: KvCache) -> None:
        """Begins to load what may be stored of it."""
        first_slot = self.slots.first
        if self.link is not None:
            self.restoration = self.link.linking.begin(cache=cache, first_slot=first_slot)
        elif self.cuts.conversation is not None:
            conversation = self.cuts.conversation
            self.restoration = conversation.begin(
                self.cuts.cuts,
                cache=cache,
                first_slot=first_slot,
                new_tokens=len(self.token_ids) - len(conversation.told.token_ids),
            )
        elif restorer is not None:
            self.restoration = restorer.begin(self.token_ids, cache=cache, first_slot=first_slot)

    def end_restoring(self, report: RestoreReport) -> None:
        """Nothing more of it is loaded."""
        self.restore = report

    def hold_link(self) -> None:
        """It will run: entries that it names stay until its end."""
        if self.link is not None:
            self.link.linking.hold()

    def end_link(self) -> None:
        """It is over: entries that it names may go."""
        if self.link is not None:
            self.link.linking.end()

    def advance(self, token_count: int) -> None:
        """A step has computed so many more tokens of it."""
        if self.link is None or not self.link.groups:
            self.computed_count += token_count
            return
        self.link.advance(token_count)
        # While entries are on their way more comes after it.
        if not (self.link.groups or self.is_restoring):
            self.computed_count = self.prompt_tokens

    def reach(self, state: RestorationState) -> None:
        """Its restoration is so far."""
        self.computed_count = state.position
        self.follow(state.open_layers)
        if self.link is not None:
            self.link.look()

    def follow(self, open_layers: OpenLayers | None) -> None:
        """New tokens may follow these from now on; those that followed more of them start over."""
        self.open_layers = open_layers
        if self.prefill is not None and not self.prefill.follows(open_layers):
            self.prefill = None

    def announce(self, sink: StateSink, stored_tokens: int) -> None:
        """Has the sink save what is computed from here on, once; nothing of a linked prompt.

        Its states depend on what was linked: under the keys of its tokens they would be wrong.
        """
        if self.is_announced or self.link is not None:
            return
        self.is_announced = True
        if self.cuts.conversation is None:
            sink.begin_request(self.request_id, self.token_ids, stored_tokens)
        else:
            self.cuts.conversation.begin_saving(
                self.request_id, self.token_ids, self.cuts.cuts, stored_tokens
            )

    def accept(self, token_id: int, now_s: float) -> bool:
        """Appends a generated token; True when it was the last one."""
        if len(self.token_ids) == self.prompt_tokens:
            self.times.first_token_s = now_s
        self.token_ids.append(token_id)
        return self.ending.is_at(token_id, len(self.token_ids))

    def complete(self, now_s: float, *, error: StepError | None = None) -> Completion:
        """The request's result; ``error`` says why it ended early."""
        first_token_s = self.times.first_token_s
        restore = self.restore or RestoreReport()
        told_cuts = 0 if self.cuts.conversation is None else len(self.cuts.conversation.told.cuts)
        return Completion(
            request_id=self.request_id,
            prompt_tokens=self.prompt_tokens,
            token_ids=tuple(self.token_ids),
            computed_tokens=self._computed_tokens(restore),
            restore=restore,
            ttft_s=(now_s if first_token_s is None else first_token_s) - self.times.added_s,
            duration_s=now_s - self.times.added_s,
            error=error,
            cuts=tuple(self.cuts.cuts[told_cuts:]),
        )

    def _computed_tokens(self, restore: RestoreReport) -> int:
        if self.link is None:
            return self.computed_count - restore.restored_tokens - self.cuts.skipped_count
        decoded_tokens = max(0, self.computed_count - self.prompt_tokens)
        return self.link.computed_count + decoded_tokens


def pending_ids(segments: Sequence[Segment], requests: Mapping[int, Request]) -> list[int]:
    """The token ids of segments, in the order of rows."""
    return [
        requests[part.request_id].token_ids[position + part.dropped_count]
        for part in segments
        for positions in part.ranges
        for position in positions
    ]
