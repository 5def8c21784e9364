"""A prompt of entries and new tokens, as a request of the engine computes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from engine_adapters.link.entry import Entry
from engine_adapters.link.errors import LinkError
from engine_adapters.link.method import LinkMethod
from engine_adapters.link.parts import EntryPart, NewPart, Part
from engine_adapters.link.plan import LinkPlan, chosen_count, plan_link
from engine_adapters.link.rows import RowGroup, loaded_chunks, row_groups
from engine_adapters.reading.arena_share import ArenaShare
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import Rates
from engine_adapters.runner.link.chosen_restoration import Chooser, ChosenRestoration
from engine_adapters.runner.link.deviations import PROBED_LAYER, Deviations
from engine_adapters.runner.link.entry_leases import EntryHold, EntryLeases
from engine_adapters.runner.link.entry_restoration import EntryRestoration
from engine_adapters.runner.link.missing_states import MissingStates
from engine_adapters.runner.link.query_ranking import QueryRanking
from engine_adapters.runner.link.stored_entries import EntryFinder
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Order, Rotary
from kvstored_contract.limits import LEASE_MS_MAX

DEFAULTS = RestoreOptions()

EARLY_TOKENS = 64
"""Tokens that are worth a step of their own while entries come: with fewer of them a step takes
about as long, because it reads all weights."""

SPANS = 4
"""A prompt comes in so many spans at least: what one has brought is computed while others come."""

SPAN_TOKENS_LEAST = 256
"""But a span of fewer tokens is not worth its reads."""


@dataclass(frozen=True, slots=True)
class EntryName:
    """A part of a prompt: the entry of that id."""

    entry_id: str


PromptPart = EntryName | Sequence[int]
"""An entry by its id, or new token ids."""


class LinkStore:
    """What all linked prompts of an engine share: the client, the loader, a share of the arena.

    Raises LinkError for states that cannot move to other positions. One thread only, but ``prompt``
    may be called from any.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        model: Model,
        *,
        options: RestoreOptions = DEFAULTS,
        rates: Rates | None = None,
        early_tokens: int | None = EARLY_TOKENS,
    ) -> None:
        """``options`` as a restorer has them, of which the way and the order do not count.

        ``rates`` are those of the engine's restorer, if there is one. While entries come at least
        ``early_tokens`` are computed in a step; None: nothing before all have come.
        """
        _check_movable(state_format)
        self.client = client
        self.state_format = state_format
        self.options = replace(options, layer_rates=None)
        self.model = model
        self.loader = LayerLoader(model, state_format)
        self.share = ArenaShare.of_client(client)
        self.leases = EntryLeases()
        self._rates = rates or Rates(None, token_budget=options.step_tokens)
        self._is_on_cpu = model.device.type == "cpu"
        self.early_tokens = early_tokens
        self._read_options = ReadOptions(
            order=Order.LAYER_FIRST,
            span_chunks=options.span_chunks(state_format),
            first_chunks=options.first_chunks(state_format),
        )

    def read_options(self, token_count: int) -> ReadOptions:
        """Of loading entries of a prompt with so many tokens: what comes first can be computed."""
        options = self._read_options
        span_tokens = max(SPAN_TOKENS_LEAST, token_count // SPANS)
        span_chunks = max(1, span_tokens // self.state_format.layout.chunk_tokens)
        return replace(options, span_chunks=min(options.span_chunks, span_chunks))

    def limit(self, token_count: int) -> LoadingLimit:
        """Of loading entries of a prompt with so many tokens."""
        return LoadingLimit.of_options(
            self.state_format,
            token_count,
            self.options,
            rates=self._rates,
            is_on_cpu=self._is_on_cpu,
        )

    def prompt(
        self,
        parts: Sequence[PromptPart],
        entries: Mapping[str, Entry],
        method: LinkMethod,
    ) -> "LinkedPrompt":
        """A prompt of these parts in this order, for one request.

        ``entries`` has each entry by its id. Raises ValueError for a prompt without tokens, and
        LinkError for a model of one layer with a method that compares states.
        """
        if method.deviating_percent and self.model.config.layer_count <= PROBED_LAYER:
            raise LinkError(f"{method} compares states of a layer that this model does not have")
        sizes: list[Part] = []
        token_ids: list[int] = []
        for part in parts:
            if isinstance(part, EntryName):
                entry = entries[part.entry_id]
                ids = entry.token_ids
                sizes.append(EntryPart(part.entry_id, len(ids), len(entry.sink_ids)))
            else:
                ids = tuple(part)
                sizes.append(NewPart(len(ids)))
            token_ids += ids
        plan = plan_link(sizes, method)
        choice = Choice(method, chosen_count(plan, sizes, method))
        sinks = {key: entry.sink_ids for key, entry in entries.items() if entry.sink_ids}
        return LinkedPrompt(self, plan, tuple(token_ids), sinks, choice)

    def close(self) -> None:
        """Ends all restorations and waits until they hold nothing any more."""
        self.share.close()
        self.leases.close()


class Choice(NamedTuple):
    """How many tokens a method chooses besides those of the plan."""

    method: LinkMethod
    token_count: int


class LinkedPrompt:
    """As ``Linking``; for one request."""

    def __init__(
        self,
        store: LinkStore,
        plan: LinkPlan,
        token_ids: tuple[int, ...],
        sinks: Mapping[str, Sequence[int]],
        choice: Choice,
    ) -> None:
        """``sinks`` has the token ids of the sink of each entry with one, by its id."""
        self.plan = plan
        self.token_ids = token_ids
        self._choice = choice
        self._sinks = sinks
        self._store = store
        self._chunk_tokens = store.state_format.layout.chunk_tokens
        self._restoration: EntryRestoration | ChosenRestoration | None = None
        self._held: EntryHold | None = None

    @property
    def groups(self) -> tuple[RowGroup, ...]:
        """As ``Linking``."""
        if self._restoration is not None:
            return self._restoration.groups
        nothing = [frozenset[int]()] * len(self.plan.entries)
        return row_groups(self.plan, nothing, chunk_tokens=self._chunk_tokens)

    def hold(self) -> None:
        """As ``Linking``: a lease, for as long as the store grants one."""
        self._held = self._store.leases.hold(partial(self._finder().pinned, LEASE_MS_MAX))

    def end(self) -> None:
        """As ``Linking``."""
        if self._held is not None:
            self._store.leases.let_go(self._held)

    def begin(
        self, *, cache: KvCache, first_slot: int
    ) -> EntryRestoration | ChosenRestoration | None:
        """As ``Linking``."""
        plan, store = self.plan, self._store
        if not any(loaded_chunks(plan, entry, self._chunk_tokens) for entry in plan.entries):
            return None
        timeout_s = store.options.timeout_s
        finder = self._finder()
        reader = SpanReader(
            store.client,
            store.state_format,
            finder,
            store.read_options(plan.token_count),
            remaining_s=lambda: timeout_s,
            share=store.share,
        )
        store.share.begin(reader.start(room_timeout_s=timeout_s))
        target = Target(token_ids=self.token_ids, cache=cache, first_slot=first_slot)
        sink_tokens = sum(entry.sink_count for entry in plan.entries)
        is_chosen = bool(self._choice.token_count or sink_tokens)
        entries = self._restoration = EntryRestoration(
            reader,
            finder,
            store.loader,
            store.state_format,
            target,
            store.limit(plan.token_count + sink_tokens),
            store.options,
            early_tokens=None if is_chosen else store.early_tokens,
        )
        if is_chosen:
            self._restoration = self._chosen(entries, target)
        return self._restoration

    def _chosen(self, entries: EntryRestoration, target: Target) -> ChosenRestoration:
        plan, store, choice = self.plan, self._store, self._choice
        step_tokens = store.options.step_tokens
        chooser: Chooser | None = None
        if choice.token_count:
            kind: type[Deviations | QueryRanking]
            kind = Deviations if choice.method.deviating_percent else QueryRanking
            chooser = kind(
                store.model, plan, target, chosen_count=choice.token_count, step_tokens=step_tokens
            )
        missing = MissingStates(store.model, plan, target, step_tokens=step_tokens)
        return ChosenRestoration(entries, missing, plan, self._sinks, chooser)

    def _finder(self) -> EntryFinder:
        store = self._store
        return EntryFinder(
            store.client,
            store.state_format.layout,
            self.plan,
            self.token_ids,
            sinks=self._sinks,
            lease_ms=int(store.options.timeout_s * 1000),
        )


def _check_movable(state_format: StateFormat) -> None:
    if state_format.layout.rotary is not Rotary.UNROTATED:
        raise LinkError(
            "this model cannot link entries, because its keys hold the positions at which they "
            "were computed (learned absolute positions)"
        )
    if state_format.recomputed_layers:
        raise LinkError(
            f"this layout recomputes {state_format.recomputed_layers} layers, and entries need "
            "all of them stored, as the modes kv and hidden do"
        )
