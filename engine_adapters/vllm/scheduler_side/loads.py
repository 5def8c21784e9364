"""The loads of one engine: ordered, cancelled, ended. Pure."""

from collections.abc import Sequence

from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.linked_span import LinkedSpan
from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack
from engine_adapters.vllm.scheduler_side.running_load import RunningLoad


class Loads:
    """Every load that has not ended in all workers, and the orders of the next step.

    A load may outlive its request: workers read into their arenas until they know of its end.
    ``is_projected``: what is loaded are layer inputs. Not thread-safe.
    """

    def __init__(
        self, *, worker_count: int, block_tokens: int, is_projected: bool, tally: Tally
    ) -> None:
        self.worker_count = worker_count
        self._block_tokens = block_tokens
        self._is_projected = is_projected
        self._tally = tally
        self._running: dict[int, RunningLoad] = {}
        self._next_load_id = 1
        self._ordered: list[LoadOrder] = []
        self._cancelled: set[int] = set()

    @property
    def has_orders(self) -> bool:
        """Whether there is a load, or the end of one, that the workers do not know."""
        return bool(self._ordered or self._cancelled)

    @property
    def meetings(self) -> tuple[int, ...]:
        """Loads for which the workers meet: of layer inputs each of several has a part."""
        return tuple(self._running) if self._is_projected and self.worker_count > 1 else ()

    def order(
        self,
        track: RequestTrack,
        found: Found,
        span: BlockSpan | LinkedSpan,
        chain_keys: Sequence[bytes],
        *,
        is_overtaken: bool,
    ) -> None:
        """Orders a load of the chunks of ``span``, by their keys.

        It keeps the leases of what was found until it ends.
        """
        order = LoadOrder(
            load_id=self._next_load_id,
            request_id=track.request.request_id,
            span=span,
            chain_keys=tuple(chain_keys),
            overtaken=is_overtaken,
        )
        self._next_load_id += 1
        track.load = RunningLoad(
            load_id=order.load_id,
            request_id=order.request_id,
            found=found,
            worker_count=self.worker_count,
            workers_left=self.worker_count,
            is_overtaken=is_overtaken,
        )
        self._running[order.load_id] = track.load
        self._ordered.append(order)
        self._tally.add("loads")

    def cancel(self, track: RequestTrack) -> None:
        """Ends the load of a request, if it has one: its blocks are not written any more."""
        if track.load is None:
            return
        self._cancelled.add(track.load.load_id)
        track.load = None
        track.overtaking = None

    def stop(self, load: RunningLoad) -> None:
        """Ends a load where it is in all workers; its request goes on with what they have."""
        self._cancelled.add(load.load_id)

    def is_ordered(self, request_id: str) -> bool:
        """Whether the next step's orders begin a load of a request."""
        return any(order.request_id == request_id for order in self._ordered)

    def take(self) -> tuple[tuple[LoadOrder, ...], frozenset[int]]:
        """Loads that begin with the next step, and those that are cancelled."""
        taken = tuple(self._ordered), frozenset(self._cancelled)
        self._ordered, self._cancelled = [], set()
        return taken

    def end(self, end: LoadEnd) -> RunningLoad | None:
        """Counts the end of a load in one worker; None for a load that has ended in all.

        Where ``workers_left`` is 0 in what is returned the load is over, and its leases are the
        caller's.
        """
        load = self._running.get(end.load_id)
        if load is None:
            return None
        load.count(
            end, self._tally, block_tokens=self._block_tokens, is_projected=self._is_projected
        )
        load.workers_left -= 1
        if not load.workers_left:
            del self._running[end.load_id]
        return load
