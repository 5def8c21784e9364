"""What the connector does in the scheduler: decides what is loaded and saved, for each step."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from engine_adapters.restore import TokenRange
from engine_adapters.vllm.identity.request_identity import RequestIdentifier
from engine_adapters.vllm.messages.block_span import claimed_chunks
from engine_adapters.vllm.messages.engine_request import (
    BlockTables,
    EngineRequest,
    Jump,
    note_external_tokens,
    set_position,
)
from engine_adapters.vllm.messages.orders import (
    NO_TOKENS,
    LoadEnd,
    SaveOrder,
    StepOrders,
    WorkerReport,
)
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.answers import Answers
from engine_adapters.vllm.scheduler_side.due_counts import DueCounts
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.linking import Linking
from engine_adapters.vllm.scheduler_side.links import Links
from engine_adapters.vllm.scheduler_side.load_choice import LoadChoice
from engine_adapters.vllm.scheduler_side.loads import Loads
from engine_adapters.vllm.scheduler_side.lookup import Lookup
from engine_adapters.vllm.scheduler_side.overtaking import Overtaking
from engine_adapters.vllm.scheduler_side.pace import Pace
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack
from engine_adapters.vllm.scheduler_side.running_load import RunningLoad
from engine_adapters.vllm.scheduler_side.saving import Saving
from engine_adapters.vllm.scheduler_side.store_identities import StoreIdentities
from engine_adapters.vllm.scheduler_side.telling import Telling
from engine_adapters.vllm.scheduler_side.waiting_hints import WaitingHints
from engine_adapters.vllm.settings.options import AdapterOptions, RestoreMode


class SchedulerSide:
    """One for each engine. What it knows of a request lies in the request's track.

    Everything here runs in the scheduler's thread and never waits longer than
    ``match_wait_ms`` in one step, for all requests together. ``jump`` moves a request to a
    position; the default sets it, which suffices where the model runner looks at it in every step.
    It may be replaced before the first request.
    """

    def __init__(
        self,
        options: AdapterOptions,
        *,
        fingerprint: str,
        identifier: RequestIdentifier,
        lookup: Lookup,
        choice: LoadChoice,
        worker_count: int,
        telling: Telling | None = None,
        hints: WaitingHints | None = None,
    ) -> None:
        self._nothing = StepOrders(fingerprint=fingerprint, asks_nothing=True)
        self._choice = choice
        self._tracks: dict[str, RequestTrack] = {}
        self._pace = Pace()
        self.lookup = lookup
        self.jump: Jump = set_position
        self.tally = Tally()
        self._due_counts = DueCounts(self.tally, self._pace)
        self.telling = telling or Telling()
        self._hints = hints
        self._identities = StoreIdentities(identifier, self.tally)
        self._links = Links(
            is_on=choice.mode is RestoreMode.PIC,
            block_tokens=choice.block_tokens,
            chunk_tokens=choice.chunk_tokens,
        )
        self._answers = Answers(lookup, self.telling, step_s=options.match_wait_s)
        self._loads = Loads(
            worker_count=worker_count,
            block_tokens=choice.block_tokens,
            is_projected=choice.planner.stores_hidden,
            tally=self.tally,
        )
        self._saving = Saving(
            is_on=options.saves,
            block_tokens=choice.block_tokens,
            tally=self.tally,
            telling=self.telling,
        )

    @property
    def overtakings(self) -> Mapping[str, Overtaking]:
        """By request that is loaded while it runs, until it has jumped, is preempted or ends."""
        return {
            request_id: track.overtaking
            for request_id, track in self._tracks.items()
            if track.overtaking is not None
        }

    def add_request(self, request: EngineRequest) -> None:
        """A request arrived: the store is asked at once."""
        identity = self._identities.of(request)
        if identity is None:
            return
        track = RequestTrack(
            request=request, identity=identity, chunk_tokens=self._choice.chunk_tokens
        )
        self._tracks[request.request_id] = track
        if not request.skip_reading_prefix_cache:
            self._links.add(track)
        question = self._answers.ask(track)
        if self._hints is None or track.linking is not None:
            return
        if not request.skip_reading_prefix_cache:
            self._hints.wait(request.request_id, question)

    def matched_tokens(
        self, request: EngineRequest, computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens beyond ``computed_tokens`` to load before the request runs; None: ask again.

        In the overtaken modes none, since the request runs while it is loaded. All that is loaded
        is loaded between steps (True): after a load that fails within one, vLLM's V2 model runner
        computes at a wrong position.
        """
        track = self._tracks.get(request.request_id)
        if track is None:
            return 0, False
        # It has no blocks: whatever it was given by an earlier try or admission is over.
        self._loads.cancel(track)
        track.overtaking = None
        if request.skip_reading_prefix_cache:
            return 0, False
        found = self._answers.get(track)
        if found is None:
            return None, False
        if track.linking is not None:
            if not self._links.begin(track.linking, found, computed_tokens=computed_tokens):
                self._answers.forget(track)
            return 0, False
        mode = self._choice.mode_of(
            stored_chunks=found.chunk_count,
            request_tokens=request.num_tokens,
            computed_tokens=computed_tokens,
        )
        if mode is RestoreMode.OFF:
            self._answers.forget(track)
            return 0, False
        usable = self._choice.usable_tokens(
            stored_chunks=found.chunk_count, request_tokens=request.num_tokens
        )
        if mode is RestoreMode.CAKE:
            # The first step is clipped before it has blocks.
            track.overtaking = Overtaking(
                stop_token=usable, chunk_tokens=self._choice.chunk_tokens, pace=self._pace
            )
            return 0, False
        return usable - computed_tokens, True

    def allocated(
        self, request: EngineRequest, load_tokens: int, block_tables: BlockTables
    ) -> None:
        """The request has blocks for ``load_tokens`` that are to be loaded, or runs from now on."""
        if self._hints is not None:
            self._hints.leave(request.request_id)
        track = self._tracks.get(request.request_id)
        if track is None:
            return
        found = self._answers.take(track)
        if found is None:
            track.overtaking = None
            return
        if track.linking is not None:
            self._load_entries(track, track.linking, found, block_tables)
            return
        usable = self._choice.usable_tokens(
            stored_chunks=found.chunk_count, request_tokens=request.num_tokens
        )
        if load_tokens:
            first_token = usable - load_tokens
        elif track.overtaking is not None and block_tables.reserve_all(request):
            first_token = 0
            track.overtaking.begin_loading()
        else:
            track.overtaking = None
            self.lookup.release(found)
            return
        span = self._choice.span(
            block_tables.ids_of(request.request_id), first_token=first_token, usable_tokens=usable
        )
        keys = found.chain_keys(span.chunks)
        self._loads.order(track, found, span, keys, is_overtaken=not load_tokens)

    def step_orders(
        self,
        scheduled: Mapping[str, int],
        preempted: Iterable[str],
        block_tables: BlockTables,
    ) -> StepOrders:
        """Orders for the step that computes ``scheduled`` tokens of each request."""
        for request_id in preempted:
            track = self._tracks.get(request_id)
            # One that was admitted again within this step has a load that is new.
            if track is not None and not self._loads.is_ordered(request_id):
                if track.linking is not None and track.request.num_computed_tokens:
                    # It has jumped: it keeps its blocks, and what is loaded into them.
                    continue
                self._loads.cancel(track)
                if track.linking is not None:
                    track.linking.give_up()
                    self._links.set_apart(track.request)
                elif self._hints is not None and request_id not in scheduled:
                    saved = Found(chain=track.chain, chunk_count=track.saved_chunks)
                    self._hints.wait_again(request_id, saved)
        claims: dict[int, int] = {}
        saves: list[SaveOrder] = []
        for request_id, token_count in scheduled.items():
            track = self._tracks.get(request_id)
            if track is None:
                continue
            computed = track.request.num_computed_tokens + token_count
            if track.is_past_loading(computed):
                self._loads.cancel(track)
            if track.load is not None and track.linking is None:
                claims[track.load.load_id] = claimed_chunks(
                    computed_tokens=computed, chunk_tokens=track.chunk_tokens
                )
            if track.has_new_chunk(computed) and self._answers.has(track):
                saves += self._saving.orders(track, computed, block_tables)
        self._answers.begin_step()
        token_count = sum(scheduled.values())
        self._pace.computed_tokens += token_count
        tokens = self._longest(scheduled, token_count)
        meetings = self._loads.meetings
        is_concerned = saves or claims or meetings or self._loads.has_orders or tokens.token_count
        if scheduled and not is_concerned:
            return self._nothing
        loads, cancels = self._loads.take()
        return replace(
            self._nothing,
            asks_nothing=False,
            is_idle=not scheduled,
            saves=tuple(saves),
            loads=loads,
            claims=claims,
            cancels=cancels,
            meetings=meetings,
            tokens=tokens,
            other_tokens=token_count - tokens.token_count if tokens.token_count else 0,
        )

    def take_report(self, report: WorkerReport) -> None:
        """What the workers said after a step."""
        for load, track in self._overtaken_loads():
            progress = report.progress.get(load.load_id)
            if progress is not None and progress.workers == self._loads.worker_count:
                if track.linking is not None:
                    track.linking.loaded_to(progress.first_loaded)
                elif track.overtaking is not None:
                    track.overtaking.loaded_from(progress.first_loaded)
            if track.overtaking is not None:
                self._try_jump(track, track.overtaking)
        for end in report.ends:
            self._end_load(end)
        if report.refusals:
            self.lookup.hear_refusals(report.refusals)

    def take_counts(self) -> dict[str, float]:
        """What was counted since the last call, where something is due."""
        return self._due_counts.take(self.lookup.take_disconnections)

    def finish_request(self, request_id: str) -> None:
        """A request has ended, or is aborted; its blocks are freed."""
        self._due_counts.end_request()
        if self._hints is not None:
            self._hints.leave(request_id)
        self._links.drop(request_id)
        track = self._tracks.pop(request_id, None)
        if track is not None:
            self._loads.cancel(track)
            self._answers.drop(track)

    def clipped_tokens(self, request_id: str, computed_tokens: int, new_tokens: int) -> int:
        """How many of ``new_tokens`` a step should compute: none that loading has sooner."""
        track = self._tracks.get(request_id)
        if track is None:
            return new_tokens
        if track.linking is not None:
            return track.linking.clipped(computed_tokens, new_tokens)
        if track.overtaking is None:
            return new_tokens
        return track.overtaking.clipped(computed_tokens, new_tokens)

    def jump_linked(self) -> None:
        """Before a step: takes each linked request over what was loaded, to what it computes."""
        for track, target, external_tokens in self._links.jumps():
            self._jump(track, target, external_tokens=external_tokens)

    def begin_generation(self) -> None:
        """What was stored may not belong to the model any more: none of it is found from now on."""
        self._identities.begin_generation()
        self.telling.retire()
        for request_id in list(self._tracks):
            self.finish_request(request_id)

    def close(self) -> None:
        """Asks nothing any more."""
        self.telling.close()
        if self._hints is not None:
            self._hints.close()
        self.lookup.close()

    def _longest(self, scheduled: Mapping[str, int], token_count: int) -> TokenRange:
        """What a step computes of the request with most of it, where that is a prompt's part.

        A step that only decodes takes longer for each token, and is to ask nothing.
        """
        if token_count - len(scheduled) < self._choice.chunk_tokens:
            return NO_TOKENS
        request_id = max(scheduled, key=lambda name: scheduled[name])
        track = self._tracks.get(request_id)
        if track is None:
            return NO_TOKENS
        first = track.request.num_computed_tokens
        return TokenRange(first, first + scheduled[request_id])

    def _overtaken_loads(self) -> list[tuple[RunningLoad, RequestTrack]]:
        """Loads of requests that run meanwhile, in the order in which they were ordered."""
        loads = [
            (track.load, track)
            for track in self._tracks.values()
            if track.load is not None and track.load.is_overtaken
        ]
        return sorted(loads, key=lambda pair: pair[0].load_id)

    def _try_jump(self, track: RequestTrack, overtaking: Overtaking) -> None:
        request = track.request
        position = request.num_computed_tokens
        target = overtaking.jump_from(position)
        if target is None:
            return
        self._loads.cancel(track)
        self._jump(track, target, external_tokens=target - position)

    def _jump(self, track: RequestTrack, target: int, *, external_tokens: int) -> None:
        """``external_tokens``: all that were loaded and not computed, of this admission."""
        token_count = target - track.request.num_computed_tokens
        self.tally.add("jumps")
        self.tally.add("jumped_tokens", token_count)
        self.tally.add("restored_tokens", token_count)
        note_external_tokens(track.request, external_tokens)
        self.jump(track.request, target)

    def _load_entries(
        self, track: RequestTrack, linking: Linking, found: Found, block_tables: BlockTables
    ) -> None:
        """Orders what a linked request needs of its entries."""
        if not (linking.is_begun and block_tables.reserve_all(track.request)):
            linking.give_up()
            self.lookup.release(found)
            return
        span = self._links.span(linking, block_tables.ids_of(track.request.request_id))
        keys = self._links.keys(linking, found)
        self._loads.order(track, found, span, keys, is_overtaken=True)
        linking.run()

    def _end_load(self, end: LoadEnd) -> None:
        load = self._loads.end(end)
        if load is None:
            return
        track = self._tracks.get(load.request_id)
        if track is not None and end.lost_chunks and track.linking is None:
            track.lose(end.lost_chunks)
        if load.workers_left:
            if end.lost_chunks and not load.is_overtaken:
                # The request computes from the lost chunk on, whatever the others bring.
                self._loads.stop(load)
            return
        self.lookup.release(load.found)
        if track is None or track.load is not load:
            return
        if track.linking is not None:
            track.load = None
            track.linking.end_loading(load.lost_chunks)
            # Workers show how far a load came until they know that nobody asks any more.
            self._loads.stop(load)
        elif not load.is_overtaken:
            track.load = None
        elif track.overtaking is not None:
            track.overtaking.end_loading()
