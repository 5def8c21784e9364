"""Scheduler classes for mode ``cake``, named by ``--scheduler-cls``. Imports vLLM.

They do what a connector cannot: end a step where loading will have come to, count jumps as
external hits, and move a request in the V2 model runner, which looks at a request's position
only when it is added.
"""

from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from engine_adapters.vllm.scheduler_side.side import SchedulerSide

if TYPE_CHECKING:

    class _Base(Scheduler):
        """What both scheduler classes have in common."""

else:
    _Base = object


class _Overtaking(_Base):
    """What both scheduler classes add."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._jumps: dict[str, int] = {}
        self._side: SchedulerSide | None = getattr(self.connector, "scheduler_side", None)
        if self._side is not None:
            self._side.jump = self._jump

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """A step; requests that jumped are taken through the path of resumed ones first."""
        if self._side is not None:
            self._side.jump_linked()
        for request_id, position in self._jumps.items():
            self._resume_at(request_id, position)
        self._jumps.clear()
        return super().schedule(*args, **kwargs)

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        count: int = super()._reserve_prefill_lookahead(
            request, num_computed_tokens, num_new_tokens
        )
        if self._side is None:
            return count
        return self._side.clipped_tokens(request.request_id, num_computed_tokens, count)

    def _jump(self, request: Any, position: int) -> None:
        if self.connector_prefix_cache_stats is not None:
            self.connector_prefix_cache_stats.record(
                num_tokens=0,
                num_hits=position - request.num_computed_tokens,
                preempted=request.num_preemptions > 0,
            )
        if self.use_v2_model_runner:
            self._jumps[request.request_id] = position
        else:
            request.num_computed_tokens = position

    def _resume_at(self, request_id: str, position: int) -> None:
        """The request gives up its place in the batch, not its blocks, and is added again.

        It was running when it jumped, and nothing ran since; it may have been aborted.
        """
        request = self.requests.get(request_id)
        if request is None or request.status is not RequestStatus.RUNNING:
            return
        self.running.remove(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = position
        self.reset_preempted_req_ids.add(request_id)
        # Before 0.31 those that hold blocks wait among all others.
        queue: Any = getattr(self, "kv_holding_waiting", self.waiting)
        queue.prepend_request(request)


class CakeScheduler(_Overtaking, Scheduler):
    """vLLM's scheduler with the two pointers of Cake, section 4."""


class CakeAsyncScheduler(_Overtaking, AsyncScheduler):
    """The same for engines that schedule a step before the last one has ended."""
