"""A runner of linked prompts for a model directory and a daemon."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from engine_adapters.link.errors import LinkError
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.link.link_runner import LinkRunner
from engine_adapters.runner.link.linked_prompt import LinkStore
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.turn import StoreOptions, open_store


@contextmanager
def open_linking(
    model: Model,
    directory: Path,
    store: StoreOptions,
    *,
    cache_tokens: int | None = None,
    token_budget: int = TOKEN_BUDGET,
) -> Iterator[LinkRunner]:
    """A runner for ``model``, loaded from ``directory``, until the context ends.

    ``cache_tokens`` bounds all prompts that run together, with their answers (default: the model's
    positions). ``store.mode`` must store every layer, as ``kv`` and ``hidden`` do. Raises LinkError
    for another one, and for a model whose states cannot move; further as ``take_turn``.
    """
    with ExitStack() as stack:
        # Entries have a saver of their own, which keeps their last tokens as well.
        opened = open_store(
            stack, model, directory, replace(store, saves=False), token_budget=token_budget
        )
        client, state_format, restorer = opened.client, opened.state_format, opened.restorer
        if client is None or state_format is None or restorer is None:
            raise LinkError("linking needs a mode that stores states, such as kv or hidden")
        links = LinkStore(
            client, state_format, model, options=restorer.options, rates=restorer.rates
        )
        yield stack.enter_context(
            LinkRunner(
                model,
                client,
                state_format,
                cache_tokens=cache_tokens or model.config.position_count,
                token_budget=token_budget,
                store=links,
                restorer=restorer,
            )
        )
