"""What the connector does in the scheduler: decides what is loaded and saved, for each step."""

import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace

from engine_adapters.vllm.block_span import BlockSpan, claimed_chunks, usable_tokens
from engine_adapters.vllm.chunk_events import ChunkEvents
from engine_adapters.vllm.engine_request import (
    BlockTables,
    EngineRequest,
    Jump,
    note_external_tokens,
    set_position,
)
from engine_adapters.vllm.lookup import Found, Lookup, PendingLookup
from engine_adapters.vllm.mode_choice import ModeChoice
from engine_adapters.vllm.options import AdapterOptions, RestoreMode
from engine_adapters.vllm.orders import LoadEnd, LoadOrder, SaveOrder, StepOrders, WorkerReport
from engine_adapters.vllm.overtaking import Overtaking
from engine_adapters.vllm.pace import Pace
from engine_adapters.vllm.request_identity import RequestIdentifier, UnknownIdentityError
from engine_adapters.vllm.request_track import RequestTrack
from engine_adapters.vllm.running_load import RunningLoad
from engine_adapters.vllm.saving import Saving
from engine_adapters.vllm.tally import Tally

LOGGER = logging.getLogger("vllm.kvstored")


class SchedulerSide:
    """One for each engine.

    Everything here runs in the scheduler's thread and never waits longer than
    ``match_wait_ms`` for one request in one step. ``jump`` moves a request to a position; the
    default sets it, which suffices where the model runner looks at it in every step. It may be
    replaced before the first request.
    """

    def __init__(
        self,
        options: AdapterOptions,
        *,
        mode: RestoreMode,
        fingerprint: str,
        identifier: RequestIdentifier,
        lookup: Lookup,
        choice: ModeChoice,
        block_tokens: int,
        worker_count: int,
    ) -> None:
        self._options = options
        self._mode = mode
        self._identifier = identifier
        self._nothing = StepOrders(fingerprint=fingerprint, asks_nothing=True)
        self.lookup = lookup
        self._block_tokens = block_tokens
        self._choice = choice
        self._chunk_tokens = choice.chunk_tokens
        self._worker_count = worker_count
        self._tracks: dict[str, RequestTrack] = {}
        self._requests: dict[str, EngineRequest] = {}
        self._pending: dict[str, PendingLookup] = {}
        self._found: dict[str, Found] = {}
        self._running: dict[int, RunningLoad] = {}
        self._overtaken: dict[int, str] = {}
        self._pace = Pace()
        self._told_tokens = 0
        self._has_ended = False
        self._next_load_id = 1
        self._new_loads: list[LoadOrder] = []
        self._cancels: set[int] = set()
        self._unknown: set[str] = set()
        self._generation = ""
        self.overtakings: dict[str, Overtaking] = {}
        """By request that is loaded while it runs, until it has jumped, is preempted or ends."""
        self.jump: Jump = set_position
        self.tally = Tally()
        self.events = ChunkEvents(worker_count)
        self._saving = Saving(
            is_on=options.saves, block_tokens=block_tokens, tally=self.tally, events=self.events
        )

    def add_request(self, request: EngineRequest) -> None:
        """A request arrived: the store is asked at once."""
        try:
            identity = self._identifier.identity_of(request)
        except UnknownIdentityError as error:
            self.tally.add("unknown_requests")
            if str(error) not in self._unknown:
                self._unknown.add(str(error))
                LOGGER.warning("kvstored bypasses request %s: %s", request.request_id, error)
            return
        if self._generation:
            identity = replace(identity, salt=f"{identity.salt} {self._generation}")
        track = RequestTrack(identity=identity, chunk_tokens=self._chunk_tokens)
        self._tracks[request.request_id] = track
        self._requests[request.request_id] = request
        self._ask(request, track)

    def matched_tokens(
        self, request: EngineRequest, computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens beyond ``computed_tokens`` to load before the request runs; None: ask again.

        In the overtaken modes none, since the request runs while it is loaded.
        """
        track = self._tracks.get(request.request_id)
        if track is None:
            return 0, False
        # It has no blocks: whatever it was given by an earlier try or admission is over.
        self._cancel(request.request_id)
        self.overtakings.pop(request.request_id, None)
        if request.skip_reading_prefix_cache:
            return 0, False
        found = self._answer(request, track)
        if found is None:
            return None, False
        usable = self._usable_tokens(request, found)
        if usable - computed_tokens < self._options.least_load_tokens:
            self._forget(request.request_id)
            return 0, False
        track.mode = self._mode_of(request, found)
        if track.mode is RestoreMode.OFF:
            self._forget(request.request_id)
            return 0, False
        if track.mode is RestoreMode.CAKE:
            # The first step is clipped before it has blocks.
            self.overtakings[request.request_id] = Overtaking(
                stop_token=usable, chunk_tokens=self._chunk_tokens, pace=self._pace
            )
            return 0, False
        return usable - computed_tokens, True

    def allocated(
        self, request: EngineRequest, load_tokens: int, block_tables: BlockTables
    ) -> None:
        """The request has blocks for ``load_tokens`` that are to be loaded, or runs from now on."""
        track = self._tracks.get(request.request_id)
        found = self._found.pop(request.request_id, None)
        if track is None:
            return
        overtaking = self.overtakings.get(request.request_id)
        if found is None:
            self.overtakings.pop(request.request_id, None)
            return
        usable = self._usable_tokens(request, found)
        if load_tokens:
            first_block = (usable - load_tokens) // self._block_tokens
        elif overtaking is not None and block_tables.reserve_all(request):
            first_block = 0
            overtaking.begin_loading()
        else:
            self.overtakings.pop(request.request_id, None)
            self.lookup.release(found)
            return
        ids = block_tables.ids_of(request.request_id)
        span = BlockSpan(
            first_block=first_block,
            block_ids=tuple(ids[first_block : usable // self._block_tokens]),
            chunk_blocks=self._chunk_tokens // self._block_tokens,
        )
        self._order_load(request, track, found, span, is_overtaken=not load_tokens)

    def step_orders(
        self,
        scheduled: Mapping[str, int],
        preempted: Iterable[str],
        block_tables: BlockTables,
    ) -> StepOrders:
        """Orders for the step that computes ``scheduled`` tokens of each request."""
        for request_id in preempted:
            # One that was admitted again within this step has a load that is new.
            if all(load.request_id != request_id for load in self._new_loads):
                self._cancel(request_id)
        claims: dict[int, int] = {}
        saves: list[SaveOrder] = []
        for request_id, token_count in scheduled.items():
            track = self._tracks.get(request_id)
            if track is None:
                continue
            request = self._requests[request_id]
            computed = request.num_computed_tokens + token_count
            if track.load_id is not None:
                claims[track.load_id] = claimed_chunks(
                    computed_tokens=computed, chunk_tokens=self._chunk_tokens
                )
            has_chunk = computed // self._chunk_tokens > track.saved_chunks
            if has_chunk and self._has_answer(request, track):
                saves += self._saving.orders(request, track, computed, block_tables)
        self._pace.computed_tokens += sum(scheduled.values())
        if scheduled and not (saves or claims or self._new_loads or self._cancels):
            return self._nothing
        loads, self._new_loads = tuple(self._new_loads), []
        cancels, self._cancels = frozenset(self._cancels), set()
        return replace(
            self._nothing,
            asks_nothing=False,
            is_idle=not scheduled,
            saves=tuple(saves),
            loads=loads,
            claims=claims,
            cancels=cancels,
        )

    def take_report(self, report: WorkerReport) -> None:
        """What the workers said behind a step."""
        for load_id, request_id in list(self._overtaken.items()):
            overtaking = self.overtakings.get(request_id)
            if overtaking is None:
                continue
            progress = report.progress.get(load_id)
            if progress is not None and progress.workers == self._worker_count:
                overtaking.loaded_from(progress.first_loaded)
            self._try_jump(self._requests[request_id], overtaking)
        for end in report.ends:
            self._end_load(end)
        for rank, keys in report.stored_keys.items():
            self.events.stored(keys, rank=rank)

    def take_counts(self) -> dict[str, float]:
        """What was counted since the last call.

        Computed tokens are told with something else or behind a request's end: telling anything
        costs the engine a little of every step.
        """
        if not (self._has_ended or self.tally.counts):
            return {}
        self.tally.add("computed_tokens", self._pace.computed_tokens - self._told_tokens)
        self._told_tokens = self._pace.computed_tokens
        self._has_ended = False
        return self.tally.take()

    def finish_request(self, request_id: str) -> None:
        """A request has ended, or is aborted; its blocks are freed."""
        self._has_ended = True
        self._cancel(request_id)
        self._forget(request_id)
        if (pending := self._pending.pop(request_id, None)) is not None:
            self.lookup.drop(pending)
        self.overtakings.pop(request_id, None)
        self._tracks.pop(request_id, None)
        self._requests.pop(request_id, None)

    def clipped_tokens(self, request_id: str, computed_tokens: int, new_tokens: int) -> int:
        """How many of ``new_tokens`` a step should compute: none that loading has sooner."""
        overtaking = self.overtakings.get(request_id)
        return new_tokens if overtaking is None else overtaking.clipped(computed_tokens, new_tokens)

    def begin_generation(self) -> None:
        """What was stored may not belong to the model any more: none of it is found from now on.

        What is stored from here on nobody else finds: of the weights only this engine knows.
        """
        self._generation = secrets.token_hex(16)
        for request_id in list(self._tracks):
            self.finish_request(request_id)

    def close(self) -> None:
        """Asks nothing any more."""
        self.lookup.close()

    def _mode_of(self, request: EngineRequest, found: Found) -> RestoreMode:
        if self._mode is not RestoreMode.AUTO:
            return self._mode
        return self._choice.mode(prompt_tokens=request.num_tokens, stored_chunks=found.chunk_count)

    def _ask(self, request: EngineRequest, track: RequestTrack) -> None:
        track.tried_admission = request.num_preemptions
        # The chain is the look-up's until it answers.
        chain, track.chain = track.chain, None
        self._pending[request.request_id] = self.lookup.ask(
            track.identity, list(request.all_token_ids), chain=chain
        )

    def _answer(self, request: EngineRequest, track: RequestTrack) -> Found | None:
        """What the store has; nothing while a load runs or was tried; None while unknown."""
        request_id = request.request_id
        if request_id in self._found:
            return self._found[request_id]
        if request_id not in self._pending:
            if track.tried_admission == request.num_preemptions:
                return Found()
            self._ask(request, track)
        found = self._pending[request_id].result(self._options.match_wait_s)
        if found is None:
            return None
        pending = self._pending.pop(request_id)
        if found.chain is None:
            # The deadline is over. What still comes has leases.
            self.lookup.drop(pending)
        track.chain = found.chain
        track.saved_chunks = max(track.saved_chunks, found.chunk_count)
        self._found[request_id] = found
        return found

    def _has_answer(self, request: EngineRequest, track: RequestTrack) -> bool:
        """Whether the keys are known, or that there are none; a request may run before that.

        It does when it is not allowed to read. What is complete by then is saved later.
        """
        if track.chain is None and self._answer(request, track) is None:
            return False
        self._forget(request.request_id)
        return True

    def _usable_tokens(self, request: EngineRequest, found: Found) -> int:
        return usable_tokens(
            stored_tokens=found.chunk_count * self._chunk_tokens,
            request_tokens=request.num_tokens,
            block_tokens=self._block_tokens,
        )

    def _order_load(
        self,
        request: EngineRequest,
        track: RequestTrack,
        found: Found,
        span: BlockSpan,
        *,
        is_overtaken: bool,
    ) -> None:
        assert found.chain is not None, "chunks were found, so there is a chain"
        chain_keys = found.chain.extend(())
        order = LoadOrder(
            load_id=self._next_load_id,
            request_id=request.request_id,
            span=span,
            chain_keys=tuple(chain_keys[span.chunks.start : span.chunks.stop]),
            overtaken=is_overtaken,
        )
        self._next_load_id += 1
        track.load_id = order.load_id
        self._running[order.load_id] = RunningLoad(
            request_id=request.request_id,
            found=found,
            worker_count=self._worker_count,
            workers_left=self._worker_count,
            is_overtaken=order.overtaken,
            is_told=track.identity.is_told,
        )
        if order.overtaken:
            self._overtaken[order.load_id] = request.request_id
        self._new_loads.append(order)
        self.tally.add("loads")

    def _try_jump(self, request: EngineRequest, overtaking: Overtaking) -> None:
        position = request.num_computed_tokens
        target = overtaking.jump_from(position)
        if target is None:
            return
        self.tally.add("jumps")
        self.tally.add("jumped_tokens", target - position)
        self.tally.add("restored_tokens", target - position)
        note_external_tokens(request, target - position)
        self._cancel(request.request_id)
        self.jump(request, target)

    def _end_load(self, end: LoadEnd) -> None:
        load = self._running.get(end.load_id)
        if load is None:
            return
        track = self._tracks.get(load.request_id)
        load.count(
            end,
            self.tally,
            block_tokens=self._block_tokens,
            is_projected=self._choice.stores_hidden,
        )
        if track is not None and end.lost_chunks:
            # They are computed again, and worth storing again.
            track.saved_chunks = min(track.saved_chunks, *end.lost_chunks)
        for chain_key in load.lost_keys(end):
            self.events.lost(chain_key)
        load.workers_left -= 1
        if load.workers_left:
            return
        del self._running[end.load_id]
        self.lookup.release(load.found)
        if track is None or track.load_id != end.load_id:
            return
        if not load.is_overtaken:
            track.load_id = None
        elif (overtaking := self.overtakings.get(load.request_id)) is not None:
            overtaking.end_loading()

    def _cancel(self, request_id: str) -> None:
        """Ends the load of a request, if one runs: its blocks are not written any more."""
        track = self._tracks.get(request_id)
        if track is None or track.load_id is None:
            return
        self._cancels.add(track.load_id)
        self._overtaken.pop(track.load_id, None)
        track.load_id = None
        self.overtakings.pop(request_id, None)

    def _forget(self, request_id: str) -> None:
        if (found := self._found.pop(request_id, None)) is not None:
            self.lookup.release(found)
