"""Entries in one daemon, and the prompts that are linked from them."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from benchmarks.benchmark import BenchmarkError
from benchmarks.pic.scale import METHODS, SINK, Scale
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.link.link_runner import LinkRequest, LinkRunner
from engine_adapters.runner.link.linked_prompt import EARLY_TOKENS, EntryName, LinkStore
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import Segment, StateSink
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

TOKEN_BUDGET = 512
NEW_TOKENS_MAX = 1


class CountedModel(Model):
    """Counts the forward passes that run all layers."""

    pass_count = 0

    def forward(
        self,
        token_ids: Sequence[int],
        segments: Sequence[Segment],
        *,
        cache: KvCache,
        sink: StateSink,
        logit_rows: Sequence[int],
        layer_stop: int | None = None,
    ) -> Tensor:
        """As ``Model``."""
        self.pass_count += 1
        return super().forward(
            token_ids,
            segments,
            cache=cache,
            sink=sink,
            logit_rows=logit_rows,
            layer_stop=layer_stop,
        )


@dataclass(frozen=True, slots=True)
class Link:
    """What one prompt took: ``pass_count`` forward passes, all of them for its first token."""

    completion: Completion
    pass_count: int

    @property
    def ttft_s(self) -> float:
        """Seconds until the first token."""
        return self.completion.ttft_s

    @property
    def load_s(self) -> float:
        """The part of that until all states were there, or given up; other work included."""
        return self.completion.restore.duration_s

    @property
    def first_token(self) -> int:
        """The token itself."""
        return self.completion.generated_ids[0]


class LinkedPrompts:
    """Prompts of all lengths whose entries are in the store of one client. One thread only.

    Raises BenchmarkError where an entry was not kept.
    """

    def __init__(
        self, scale: Scale, model: CountedModel, client: Client, token_ids: Sequence[int]
    ) -> None:
        """``token_ids`` are of the longest prompt; makes all entries."""
        self._scale = scale
        self._model = model
        self._token_ids = token_ids
        states = StateFormat.of_model(model, "pic-benchmark")
        self._store = LinkStore(client, states, model)
        self._runner = LinkRunner(
            model,
            client,
            states,
            cache_tokens=max(scale.lengths) + NEW_TOKENS_MAX,
            token_budget=TOKEN_BUDGET,
            store=self._store,
        )
        # Of each length its last entry is cut, to make room for the question.
        self._entries: dict[tuple[bool, tuple[int, ...]], str] = {}
        chunks = [chunk for length in scale.lengths for chunk in self._chunks(length)]
        sink_ids = token_ids[-scale.sink_tokens :]
        for has_sink in (False, True) if SINK in scale.methods else (False,):
            ids = self._runner.generate_context_cache(chunks, sink_ids=sink_ids if has_sink else ())
            made = zip(chunks, ids, strict=True)
            self._entries.update({(has_sink, chunk): entry_id for chunk, entry_id in made})

    def link(self, name: str, length: int, *, overlaps: bool = True) -> Link:
        """Links a prompt of so many tokens.

        Where it does not overlap nothing is computed before everything was loaded.
        """
        self._store.early_tokens = EARLY_TOKENS if overlaps else None
        parts = [EntryName(self._entries[name == SINK, one]) for one in self._chunks(length)]
        return self._run([*parts, self._question(length)], METHODS[name])

    def plain(self, length: int) -> Link:
        """The same prompt without entries."""
        return self._run([self._token_ids[:length]], "naive")

    def check(self, link: Link, name: str, *, is_cold: bool) -> None:
        """Raises BenchmarkError where states were computed that should have been loaded.

        Or where those that should come from devices came from DRAM.
        """
        report = link.completion.restore
        computed = link.completion.computed_tokens
        if report.restored_tokens + computed != link.completion.prompt_tokens:
            raise BenchmarkError(
                f"{name}: {report.restored_tokens} tokens loaded, {computed} not, of a "
                f"{'cold' if is_cold else 'warm'} store: {report}"
            )
        if is_cold and report.dram_bytes > report.device_bytes:
            raise BenchmarkError(
                f"{name}: of a cold store {report.dram_bytes} bytes came from DRAM and "
                f"{report.device_bytes} from devices"
            )

    def close(self) -> None:
        """Ends the runner."""
        self._runner.close()

    def _run(self, parts: Sequence[EntryName | Sequence[int]], method: str) -> Link:
        before = self._model.pass_count
        request = LinkRequest(parts=parts, new_tokens_max=NEW_TOKENS_MAX, method=method)
        completion = self._runner.link(request)
        return Link(completion, self._model.pass_count - before)

    def _question(self, length: int) -> Sequence[int]:
        return self._token_ids[length - self._scale.question_tokens : length]

    def _chunks(self, length: int) -> list[tuple[int, ...]]:
        stop, size = length - self._scale.question_tokens, self._scale.entry_tokens
        return [
            tuple(self._token_ids[first : min(first + size, stop)])
            for first in range(0, stop, size)
        ]
