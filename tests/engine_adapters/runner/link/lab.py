"""Prompts that the runner links, and the same ones computed densely."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.link.link_runner import LinkRequest, LinkRunner
from engine_adapters.runner.link.linked_prompt import EntryName, LinkStore, PromptPart
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.engine_adapters.runner.link.reference import DenseLlama, ReferencePart, boundary_tokens
from tests.engine_adapters.runner.memory import check_released, make_store

CHUNK_TOKENS = 4
POSITIONS = 1024
CACHE_TOKENS = 800
SKIPPED_SLOTS = 9
LOGITS_EXACT = 1e-4
NEW_TOKENS = 3


class Pace(NamedTuple):
    """How entries come: so many tokens at once, and how many are computed meanwhile at least."""

    span_tokens: int
    early_tokens: int | None


TOGETHER = Pace(1024, None)
"""Nothing is computed before all have come, so that tests can count steps."""

ONE_BY_ONE = Pace(12, 1)
"""What can be computed is computed while later chunks come."""


@dataclass
class Linked:
    """What the runner made of a prompt; ``steps`` are the tokens of each forward pass."""

    completion: Completion
    logits: list[Tensor]
    steps: list[int]


@dataclass
class LinkLab:
    """Entries in a store, and the prompts that name them."""

    model: Model
    state_format: StateFormat
    dense: DenseLlama
    store: MemoryStore = field(default_factory=make_store)

    def runner(
        self, client: MemoryClient, *, token_budget: int = 512, pace: Pace = TOGETHER
    ) -> LinkRunner:
        runner = LinkRunner(
            self.model,
            client,
            self.state_format,
            cache_tokens=CACHE_TOKENS,
            token_budget=token_budget,
            store=LinkStore(
                client,
                self.state_format,
                self.model,
                options=RestoreOptions(span_tokens=pace.span_tokens),
                early_tokens=pace.early_tokens,
            ),
        )
        # A slot that is not 0, so that positions and slots differ.
        runner._engine._pool.reserve(SKIPPED_SLOTS)
        return runner

    def generate(
        self, chunks: Sequence[Sequence[int]], *, sink_ids: Sequence[int] = ()
    ) -> list[str]:
        with MemoryClient(self.store) as client, self.runner(client) as runner:
            ids = runner.generate_context_cache(chunks, sink_ids=sink_ids)
        check_released(self.store)
        return ids

    def link(
        self,
        parts: Sequence[PromptPart],
        method: str,
        *,
        token_budget: int = 512,
        pace: Pace = TOGETHER,
    ) -> Linked:
        """A new process with nothing but the store."""
        logits: list[Tensor] = []
        steps: list[int] = []
        forward = self.model.forward

        def watched(token_ids: Sequence[int], *arguments: Any, **options: Any) -> Tensor:
            made = forward(token_ids, *arguments, **options)
            logits.extend(made)
            steps.append(len(token_ids))
            return made

        with (
            MemoryClient(self.store) as client,
            self.runner(client, token_budget=token_budget, pace=pace) as runner,
        ):
            self.model.forward = watched  # type: ignore[method-assign]
            try:
                completion = runner.link(
                    LinkRequest(parts=parts, new_tokens_max=NEW_TOKENS, method=method)
                )
            finally:
                self.model.forward = forward  # type: ignore[method-assign]
        check_released(self.store)
        return Linked(completion, logits, steps)

    def check(
        self,
        parts: Sequence[ReferencePart],
        method: str,
        *,
        token_budget: int = 512,
        named: Sequence[PromptPart] | None = None,
        pace: Pace = TOGETHER,
    ) -> Linked:
        """Links the parts and compares the logits of each new token with the reference."""
        named = self.named(parts) if named is None else named
        linked = self.link(named, method, token_budget=token_budget, pace=pace)
        new_ids: list[int] = []
        for ours, token_id in zip(linked.logits, linked.completion.generated_ids, strict=True):
            theirs = self.expected(parts, method, new_ids)
            assert (ours - theirs).abs().max() < LOGITS_EXACT
            new_ids.append(token_id)
        assert len(new_ids) == NEW_TOKENS
        return linked

    def named(self, parts: Sequence[ReferencePart]) -> list[PromptPart]:
        """The same parts, with entries made of those that are."""
        made: dict[ReferencePart, str] = {}
        for sink_ids in {part.sink_ids for part in parts if part.is_entry}:
            mine = [part for part in parts if part.is_entry and part.sink_ids == sink_ids]
            found = self.generate([part.token_ids for part in mine], sink_ids=sink_ids)
            made.update(zip(mine, found, strict=True))
        return [EntryName(made[part]) if part.is_entry else part.token_ids for part in parts]

    def expected(
        self, parts: Sequence[ReferencePart], method: str, new_ids: Sequence[int]
    ) -> Tensor:
        return expected_logits(self.dense, parts, method, new_ids)

    def lose(self, numbers: Sequence[int]) -> None:
        """Evicts these of the chunks of states, in the order in which they were stored."""
        layout_id = self.state_format.layout.layout_id
        keys = [key for key, one in self.store.chunks.items() if one.layout_id == layout_id]
        for number in numbers:
            self.store.chunks.pop(keys[number % len(keys)], None)


def expected_logits(
    dense: DenseLlama, parts: Sequence[ReferencePart], method: str, new_ids: Sequence[int]
) -> Tensor:
    """Of the reference, after the parts and ``new_ids``."""
    if method == "full":
        every = [token_id for part in parts for token_id in part.token_ids]
        return dense.plain([*every, *new_ids])
    # The last token of a prompt is computed, and one of an entry has other states after that.
    ends_new = not [part for part in parts if part.token_ids][-1].is_entry
    has_sinks = any(part.sink_ids for part in parts)
    if method == "naive" and ends_new and not has_sinks:
        return dense.block_diagonal(parts, new_ids)
    if method.startswith("cacheblend-"):
        chosen = dense.deviating(parts, int(method.removeprefix("cacheblend-")))
        return dense.linked(parts, chosen, new_ids)
    if method.startswith(("query-", "split-")):
        k = int(method.partition("-")[2])
        boundary_k = k // 2 if method.startswith("split-") else 0
        asked = dense.asked(parts, k, boundary_k=boundary_k)
        return dense.linked(parts, asked, new_ids)
    k = 0 if method == "naive" else int(method.removeprefix("attnlink-"))
    return dense.linked(parts, boundary_tokens(parts, k), new_ids)


def entry(count: int, seed: int = 1) -> ReferencePart:
    return ReferencePart(ids(count, seed), True)


def after_sink(count: int, seed: int = 1, sink_count: int = 3) -> ReferencePart:
    return ReferencePart(ids(count, seed), True, ids(sink_count, 90))


def new(count: int, seed: int = 50) -> ReferencePart:
    return ReferencePart(ids(count, seed), False)


def ids(count: int, seed: int) -> tuple[int, ...]:
    return tuple((7 * n * n + 11 * n + 5 * seed) % 97 for n in range(count))
