"""One turn of a conversation: a prompt in, generated tokens and a report out."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from engine_adapters.runner.chunk_writer import SaveReport
from engine_adapters.runner.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.model import Model
from engine_adapters.runner.request import Completion
from engine_adapters.runner.restorer import StateRestorer
from engine_adapters.runner.sampling import Sampling
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import CHUNK_TOKENS, StateFormat
from kvstored_client import Client, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a turn uses the store; ``socket`` None is the client's default."""

    socket: str | None = None
    salt: str = ""
    arena_bytes: str = "256MiB"
    chunk_tokens: int = CHUNK_TOKENS
    order: Order = Order.TAIL_FIRST
    saves: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """What a turn did; without a store ``save`` is all zero and ``counters`` empty."""

    completion: Completion
    save: SaveReport
    counters: dict[str, int]


def take_turn(
    model: Model,
    directory: Path,
    prompt: Sequence[int],
    *,
    new_tokens_max: int,
    sampling: Sampling,
    store: StoreOptions | None,
    token_budget: int = TOKEN_BUDGET,
) -> TurnReport:
    """Runs ``prompt`` through ``model``, loaded from ``directory``.

    With a store, the history is restored as far as it is stored, and what was computed
    is durable when the function returns. A store that fails only costs time. Raises
    RequestError for a prompt that can never run.
    """
    with ExitStack() as stack:
        client: Client | None = None
        saver: StateSaver | None = None
        restorer: StateRestorer | None = None
        if store is not None:
            client = stack.enter_context(
                Client(store.socket, arena_bytes=store.arena_bytes, name="runner", salt=store.salt)
            )
            client.available()
            state_format = StateFormat.of_directory(
                model, directory, chunk_tokens=store.chunk_tokens
            )
            restorer = StateRestorer(client, state_format, model.rotary, order=store.order)
            if store.saves:
                saver = StateSaver(client, state_format)
                stack.callback(saver.close)
        engine = Engine(
            model,
            cache_tokens=len(prompt) + new_tokens_max,
            token_budget=token_budget,
            requests_max=1,
            sink=saver,
            restorer=restorer,
        )
        engine.warm_up()
        engine.add_request(prompt, new_tokens_max=new_tokens_max, sampling=sampling)
        (completion,) = engine.run()
        return TurnReport(
            completion=completion,
            save=SaveReport() if saver is None else saver.finish(),
            counters={} if client is None else dict(client.counters),
        )
