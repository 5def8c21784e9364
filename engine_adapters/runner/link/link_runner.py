"""Makes entries, and answers prompts that are linked from them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from engine_adapters.link.entries import DEFAULT_QUOTA, Entries, Entry
from engine_adapters.link.method import LinkMethod
from engine_adapters.link.quota import EntryQuota
from engine_adapters.runner.engine.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restoration import Restorer
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.link.entry_sink import EntrySink
from engine_adapters.runner.link.linked_prompt import EntryName, LinkStore, PromptPart
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client
from kvstored_contract.keys import history_keys

LEASE_MS = 1000
"""How long chunks of an entry are kept while somebody looks whether all are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRequest:
    """A prompt of ``parts`` in this order, and how it is answered; ``method`` by its name."""

    parts: Sequence[PromptPart]
    new_tokens_max: int
    method: str = "attnlink-16"
    sampling: Sampling | None = None


class LinkRunner:
    """One engine for entries and for prompts that are linked from them (EPIC, section 3).

    One thread only. Raises LinkError for a model or a layout whose states cannot move, and where
    the store cannot keep an entry or tell its tokens.
    """

    def __init__(
        self,
        model: Model,
        client: Client,
        state_format: StateFormat,
        *,
        cache_tokens: int,
        token_budget: int = TOKEN_BUDGET,
        store: LinkStore | None = None,
        restorer: Restorer | None = None,
        quota: EntryQuota = DEFAULT_QUOTA,
    ) -> None:
        """``store`` has options of its own; entries are made faster with a ``restorer``."""
        self.entries = Entries(client, state_format.layout.model, quota=quota)
        """Which there are, and how one ends: ``list``, ``get``, ``expire``."""
        self._client = client
        self._layout = state_format.layout
        self._store = LinkStore(client, state_format, model) if store is None else store
        self._saver = StateSaver(client, state_format, device=model.device)
        self._engine = Engine(
            model,
            cache_tokens=cache_tokens,
            token_budget=token_budget,
            requests_max=min(token_budget, 64),
            sink=EntrySink(self._saver),
            restorer=restorer,
        )

    def generate_context_cache(
        self,
        chunks: Sequence[Sequence[int]],
        *,
        ttl_s: int | None = None,
        sink_ids: Sequence[int] = (),
    ) -> list[str]:
        """The ids of entries of these token ids, in order; each is computed on its own and stored.

        Tokens that have an entry keep its id, which lasts for ``ttl_s`` from now on if that is
        longer (None: until ``entries.expire``); states of it that are lost are computed again.
        A chunk without tokens has an entry as well. All ids are durable when it returns.

        With a sink each chunk is computed after ``sink_ids``, which are dropped when it is linked:
        they draw the attention that the first tokens of any prompt draw (APE, CacheClip). The same
        tokens after another sink have another id. Raises RequestError for a chunk that the model
        cannot compute, QuotaError where the entries do not fit, StepError where computing fails.
        """
        found = self.entries.look_up(chunks, ttl_s=ttl_s, sink_ids=sink_ids)
        prompts = [(*sink_ids, *chunk) for chunk in found if chunk]
        self._compute([prompt for prompt in prompts if not self._is_stored(prompt)])
        made = {
            chunk: self.entries.keep(entry, chunk, ttl_s=ttl_s, sink_ids=sink_ids)
            for chunk, entry in found.items()
        }
        return [made[tuple(chunk)].entry_id for chunk in chunks]

    def link(self, request: LinkRequest) -> Completion:
        """The answer to one prompt; see ``answer``."""
        (completion,) = self.answer([request])
        return completion

    def answer(self, requests: Sequence[LinkRequest]) -> list[Completion]:
        """Answers of prompts that run together, in order.

        Raises ExpiredError for an id that is over, ValueError for a method that there is not,
        RequestError for what can never run, and StepError where computing fails. States that the
        store has lost only cost time.
        """
        known: dict[str, Entry] = {}
        for request in requests:
            for part in request.parts:
                if isinstance(part, EntryName) and part.entry_id not in known:
                    known[part.entry_id] = self.entries.get(part.entry_id)
        return self._run(self._queued(partial(self._add, one, known) for one in requests))

    def close(self) -> None:
        """Ends everything; waits until nothing is held any more."""
        self._store.close()
        self._saver.close()

    def _add(self, request: LinkRequest, entries: Mapping[str, Entry]) -> int:
        """Queues a request; its number."""
        method = LinkMethod.named(request.method)
        try:
            prompt = self._store.prompt(request.parts, entries, method)
        except ValueError as error:
            raise RequestError(str(error)) from error
        return self._engine.add_request(
            prompt.token_ids,
            new_tokens_max=request.new_tokens_max,
            sampling=request.sampling,
            link=prompt,
        )

    def _compute(self, chunks: Sequence[Sequence[int]]) -> None:
        """Computes and stores the states of each chunk, alone."""
        add = partial(self._engine.add_request, new_tokens_max=1)
        numbers = self._queued(partial(add, chunk) for chunk in chunks)
        try:
            self._run(numbers)
        finally:
            self._saver.finish()

    def _queued(self, adding: Iterable[Callable[[], int]]) -> list[int]:
        """Numbers of requests that were added together: all of them, or none."""
        numbers: list[int] = []
        for add in adding:
            try:
                number = add()
            except Exception:
                for added in numbers:
                    self._engine.abort(added)
                raise
            numbers.append(number)
        return numbers

    def _run(self, numbers: Sequence[int]) -> list[Completion]:
        found = {completion.request_id: completion for completion in self._engine.run()}
        completions = [found[number] for number in numbers]
        for completion in completions:
            if completion.error is not None:
                raise completion.error
        return completions

    def _is_stored(self, token_ids: Sequence[int]) -> bool:
        """Whether the store has all states of an entry."""
        if not self._client.namespace:
            return False
        keys = history_keys(
            namespace=self._client.namespace, layout=self._layout, token_ids=token_ids
        )
        lease = self._client.pin(self._layout, keys, lease_ms=LEASE_MS)
        if lease is None:
            return False
        try:
            return all(lease.is_pinned)
        finally:
            lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
