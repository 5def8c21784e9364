"""One request on its way through the engine, and what comes out of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_adapters.runner.engine.layered_prefill import LayeredPrefill
from engine_adapters.runner.engine.restoration import OpenLayers, Restoration
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.engine.sampling import Sampler
from engine_adapters.runner.engine.scheduler import Progress
from engine_adapters.runner.engine.slot_pool import SlotRange
from engine_adapters.runner.model.errors import RequestError, StepError
from engine_adapters.runner.model.model_config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A finished request.

    ``computed_tokens`` counts forwarded tokens, generated ones included; the last
    generated token is never forwarded. ``ttft_s`` runs from ``add_request`` to the first
    generated token, restoration included. With an ``error`` the request ended before its
    last token, maybe before its first: then ``ttft_s`` is the time until it ended.
    """

    request_id: int
    prompt_tokens: int
    token_ids: tuple[int, ...]
    computed_tokens: int
    restore: RestoreReport
    ttft_s: float
    duration_s: float
    error: StepError | None = None

    @property
    def generated_ids(self) -> tuple[int, ...]:
        """The tokens behind the prompt."""
        return self.token_ids[self.prompt_tokens :]


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """Mutable state of a request inside the engine.

    Invariant: the cache holds the states of ``token_ids[:computed_count]`` in
    ``slots``, and ``computed_count < len(token_ids)`` until the request is finished.
    """

    request_id: int
    prompt_tokens: int
    token_ids: list[int]
    sampler: Sampler
    stop_token_ids: frozenset[int]
    new_tokens_max: int
    added_at_s: float
    slots: SlotRange = field(default=SlotRange(0, 0))
    computed_count: int = 0
    restoration: Restoration | None = None
    is_restored: bool = False
    """Whether its restoration is over."""
    open_layers: OpenLayers | None = None
    """What new tokens may follow now, layer by layer."""
    prefill: LayeredPrefill | None = None
    """Those that do."""
    is_announced: bool = False
    """Whether the sink has heard of it."""
    first_token_at_s: float = 0.0

    @property
    def token_count_max(self) -> int:
        """Longest that the sequence can become."""
        return self.prompt_tokens + self.new_tokens_max

    @property
    def is_restoring(self) -> bool:
        """Whether stored states of it may still be on their way."""
        return self.restoration is not None and not self.is_restored

    @property
    def progress(self) -> Progress:
        """What the scheduler sees."""
        return Progress(
            request_id=self.request_id,
            first_slot=self.slots.first,
            token_count=len(self.token_ids),
            computed_count=self.computed_count,
            step_tokens_max=None if self.prefill is None else 0,
        )

    def follow(self, open_layers: OpenLayers | None) -> None:
        """New tokens may follow these from now on; those that followed more of them start over."""
        self.open_layers = open_layers
        if self.prefill is not None and not self.prefill.follows(open_layers):
            self.prefill = None

    def accept(self, token_id: int, now_s: float) -> bool:
        """Appends a generated token; True when it was the last one."""
        if len(self.token_ids) == self.prompt_tokens:
            self.first_token_at_s = now_s
        self.token_ids.append(token_id)
        return token_id in self.stop_token_ids or len(self.token_ids) == self.token_count_max

    def complete(self, now_s: float, *, error: StepError | None = None) -> Completion:
        """The request's result; ``error`` says why it ended early."""
        has_token = len(self.token_ids) > self.prompt_tokens
        restore = RestoreReport() if self.restoration is None else self.restoration.report()
        return Completion(
            request_id=self.request_id,
            prompt_tokens=self.prompt_tokens,
            token_ids=tuple(self.token_ids),
            computed_tokens=self.computed_count - restore.restored_tokens,
            restore=restore,
            ttft_s=(self.first_token_at_s if has_token else now_s) - self.added_at_s,
            duration_s=now_s - self.added_at_s,
            error=error,
        )


def pending_ids(requests: Sequence[tuple[Request, int]]) -> list[int]:
    """The next ``count`` token ids of each (request, count), one after the other."""
    return [
        token_id
        for request, count in requests
        for token_id in request.token_ids[request.computed_count : request.computed_count + count]
    ]


def check_request(
    prompt: Sequence[int], new_tokens_max: int, config: ModelConfig, slot_count: int
) -> None:
    """Raises RequestError for what can never run with that model and so many slots."""
    if not prompt or new_tokens_max < 1:
        raise RequestError("a request needs at least one prompt token and one new token")
    if not all(0 <= token_id < config.vocab_size for token_id in prompt):
        raise RequestError(f"every token id must be 0 to {config.vocab_size - 1}")
    limits = (("the model's positions", config.position_count), ("the cache's tokens", slot_count))
    for name, limit in limits:
        if len(prompt) + new_tokens_max > limit:
            raise RequestError(
                f"{len(prompt)} prompt tokens and {new_tokens_max} new ones exceed {name} ({limit})"
            )
