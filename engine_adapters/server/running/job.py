"""What the engine's thread is given to do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine_adapters.runner.engine.conversing import Conversing
from engine_adapters.runner.engine.linking import Linking
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.model.step import StateSink

Outcome = Completion | Exception | None
"""What a job ends with: an answer, why there is none, or None where it was aborted."""


class Listener(Protocol):
    """Who waits for a job. On the engine's thread: neither waits nor raises."""

    def take(self, token_id: int) -> bool:
        """A new token; True where no more are wanted."""

    def end(self, outcome: Outcome) -> None:
        """The engine holds nothing of the job any more; called once."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """A request for ``Engine.add_request``; ``saver`` keeps its states where it is announced."""

    prompt: Sequence[int]
    new_tokens_max: int
    listener: Listener
    sampling: Sampling = field(default_factory=Sampling)
    saver: StateSink | None = None
    conversation: Conversing | None = None
    link: Linking | None = None
    request_id: int | None = None
    """The engine's number for it; the engine's thread only."""
