"""Conversations of one engine, with a store or without."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.benchmark import BenchmarkError
from benchmarks.conversations.costs import CHUNK_TOKENS
from benchmarks.conversations.timed_talk import ForgottenTalk, Preloading, TimedTalk
from engine_adapters.runner.conversation.continued import ContinuedConversation, ConversationStore
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

MODEL_NAME = "conversations"
REQUESTS_MAX = 2
"""One that decodes, and one whose window comes meanwhile."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn of the conversation of this name; so many tokens are answered."""

    name: str
    prompt: Sequence[int]
    answer_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTaken:
    """``ttft_s`` runs from when the engine took the turn up, which waited before."""

    name: str
    ttft_s: float
    completion: Completion


@dataclass(slots=True)
class Forgetting:
    """Keeps tokens alone: every turn computes all (RE)."""

    said: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def open(self, name: str) -> ForgottenTalk:
        """The conversation of this name."""
        return ForgottenTalk(self.said.get(name, ()))

    def end_turn(self, name: str, completion: Completion) -> None:
        """Keeps what was said."""
        self.said[name] = completion.token_ids

    def close(self) -> None:
        """Nothing to end."""


class Keeping:
    """Conversations in a store. Not thread-safe."""

    def __init__(
        self,
        client: Client,
        model: Model,
        options: RestoreOptions,
        *,
        saves: bool = True,
        tells_queue: bool = True,
    ) -> None:
        states = StateFormat.of_model(model, MODEL_NAME, chunk_tokens=CHUNK_TOKENS)
        self.saver = StateSaver(client, states) if saves else None
        self._talks = ConversationStore(
            client, states, model, saver=self.saver, options=options, tells_queue=tells_queue
        )
        self._opened: dict[str, ContinuedConversation] = {}

    def open(self, name: str) -> ContinuedConversation:
        """The conversation of this name."""
        talk = self._opened[name] = self._talks.open(name)
        return talk

    def end_turn(self, name: str, completion: Completion) -> None:
        """Makes the turn durable."""
        self._opened.pop(name).end_turn(completion.token_ids, completion.cuts)

    def close(self) -> None:
        """Ends restorations and saves."""
        self._talks.close()
        if self.saver is not None:
            self.saver.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Turns that came at once, and the ``duration_s`` in which the engine served all of them.

    The engine's thread had a core for ``busy_s`` of that, and waited for the rest of it.
    """

    turns: tuple[TurnTaken, ...]
    duration_s: float
    busy_s: float


def take_turns(
    model: Model,
    talks: Forgetting | Keeping,
    asked: Sequence[Asked],
    *,
    cache_tokens: int,
    requests_max: int = REQUESTS_MAX,
    keeps: bool = True,
    preload: Preloading | None = None,
) -> Wave:
    """Takes a turn of each named conversation, all of which come at once in this order.

    With ``keeps`` they are made durable after all of them, which is no time of the engine. Raises
    BenchmarkError for a turn that ended with an error.
    """
    engine = Engine(
        model,
        cache_tokens=cache_tokens,
        requests_max=requests_max,
        sink=talks.saver if isinstance(talks, Keeping) else None,
    )
    engine.warm_up()
    opened = {turn.name: TimedTalk(talks.open(turn.name), preload=preload) for turn in asked}
    names = {}
    started_s, started_busy_s = time.perf_counter(), time.thread_time()
    for turn in asked:
        timed = opened[turn.name]
        timed.added_s = time.perf_counter()
        number = engine.add_request(
            turn.prompt,
            new_tokens_max=turn.answer_tokens,
            stop_token_ids=(),
            conversation=timed,
        )
        names[number] = turn.name
    completions = engine.run()
    duration_s = time.perf_counter() - started_s
    busy_s = time.thread_time() - started_busy_s
    turns = []
    for completion in completions:
        if completion.error is not None:
            raise BenchmarkError(f"a turn failed: {completion.error}")
        name = names[completion.request_id]
        ttft_s = opened[name].ttft_s(completion)
        turns.append(TurnTaken(name=name, ttft_s=ttft_s, completion=completion))
        if keeps:
            talks.end_turn(name, completion)
    return Wave(turns=tuple(turns), duration_s=duration_s, busy_s=busy_s)
