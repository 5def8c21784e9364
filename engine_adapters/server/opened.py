"""A service for a model directory and a daemon."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from engine_adapters.runner.engine.engine import REQUESTS_MAX, TOKEN_BUDGET, Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.runner.turn import StoreOptions, open_store
from engine_adapters.server.api_keys import ApiKeys
from engine_adapters.server.http.service import Service
from engine_adapters.server.protocol.limits import Limits
from engine_adapters.server.running.engine_thread import EngineThread
from engine_adapters.server.running.namespace import Namespace
from engine_adapters.server.running.shared_sink import SharedSink
from engine_adapters.server.served_model import ServedModel, read_template


class StoreError(ValueError):
    """A mode that stores nothing, and so cannot serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Sizes of the engine; ``cache_tokens`` None: the positions of the model."""

    cache_tokens: int | None = None
    token_budget: int = TOKEN_BUDGET
    running_max: int = REQUESTS_MAX


OpenNamespace = Callable[[ExitStack, str], Namespace]
"""Opens what a namespace has of the store; the stack closes it."""


@contextmanager
def opened(
    model: Model,
    directory: Path,
    open_namespace: OpenNamespace,
    *,
    name: str,
    options: EngineOptions,
    limits: Limits,
    keys: ApiKeys,
) -> Iterator[Service]:
    """A service until the context ends, which first stops the engine.

    ``name`` is that of the model for clients. Raises ModelError for a directory without a
    tokenizer, or with a broken template.
    """
    with ExitStack() as stack:
        namespaces = {one: open_namespace(stack, one) for one in keys.names}
        sink = SharedSink()
        cache_tokens = options.cache_tokens or model.config.position_count
        engine = Engine(
            model,
            cache_tokens=cache_tokens,
            token_budget=options.token_budget,
            requests_max=min(options.running_max, options.token_budget),
            sink=sink,
        )
        engine.warm_up()
        served = ServedModel(
            name=name,
            config=model.config,
            tokenizer=Tokenizer.from_directory(directory),
            template=read_template(directory),
            window_tokens=min(cache_tokens, model.config.position_count),
            created_s=int(time.time()),
        )
        thread = EngineThread(engine, sink)
        stack.callback(thread.stop)
        yield Service(
            engine=thread,
            model=served,
            namespaces=namespaces,
            keys=keys,
            limits=limits,
            running_max=options.running_max,
        )


def namespaces_of_daemon(
    model: Model, directory: Path, store: StoreOptions, *, token_budget: int
) -> OpenNamespace:
    """Namespaces of a daemon: each has a client, with its name in the salt.

    A daemon that is not there only costs time. Raises StoreError for a mode that stores nothing;
    further as ``take_turn``.
    """

    def open_namespace(stack: ExitStack, name: str) -> Namespace:
        salt = f"{store.salt}/{name}" if name else store.salt
        found = open_store(
            stack, model, directory, replace(store, salt=salt), token_budget=token_budget
        )
        client, states, restorer, saver = (
            found.client,
            found.state_format,
            found.restorer,
            found.saver,
        )
        if client is None or states is None or restorer is None or saver is None:
            raise StoreError("a server needs a mode that stores states, such as kv or hidden")
        namespace = Namespace.open(salt, model, client, states, restorer, saver)
        stack.callback(namespace.close)
        return namespace

    return open_namespace
