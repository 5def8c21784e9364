"""One history under the partitions of figure 13, as restorers carry them out."""

from collections.abc import Mapping, Sequence

from benchmarks.kit.restored_history import restored
from benchmarks.kit.saved_history import SavedHistory
from benchmarks.restore.measured.modes import NEW_TOKENS
from benchmarks.restore.token_partition.partition import TokenPartition
from benchmarks.restore.token_partition.restorer import TokenPartitionRestorer
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.restore.restorer import Restorer
from kvstored_client import Client

LAYER_WISE = "layer_wise"


class PartitionRunner:
    """Saves a history for a schedule of layers and for partitions by tokens, and restores it.

    Token-wise ones read from two layouts of their own each, as ``TokenPartitionRestorer``
    says. One thread only.
    """

    def __init__(
        self,
        model: Model,
        history: Sequence[int],
        schedule: LayerSchedule,
        partitions: Mapping[str, TokenPartition],
    ) -> None:
        self._model = model
        self._partitions = partitions
        layers = model.config.layer_count
        self._saved = SavedHistory(
            model,
            history,
            {
                LAYER_WISE: schedule,
                **{
                    _use(name, source): LayerSchedule.of((source, layers))
                    for name in partitions
                    for source in (Source.HIDDEN, Source.KV)
                },
            },
        )
        self._cache = model.make_cache(len(history) + NEW_TOKENS)

    def save(self, client: Client) -> None:
        """Prefills the history once and stores what each partition needs."""
        self._saved.save(client, new_tokens=1)

    def ask_for_nothing(self, client: Client) -> None:
        """As ``SavedHistory``."""
        self._saved.ask_for_nothing(client)

    def restore(self, client: Client, name: str) -> float:
        """Restores the whole history; seconds. Raises BenchmarkError unless all came cold."""
        # One more token, because the last one is never restored.
        tokens = [*self._saved.tokens, 0]
        if name == LAYER_WISE:
            layer_wise = Restorer(client, self._saved.format(LAYER_WISE), self._model)
            report = restored(layer_wise, tokens, cache=self._cache)
        else:
            token_wise = TokenPartitionRestorer(
                client,
                self._model,
                hidden_format=self._saved.format(_use(name, Source.HIDDEN)),
                kv_format=self._saved.format(_use(name, Source.KV)),
            )
            report = token_wise.restore(
                tokens, self._partitions[name], cache=self._cache, first_slot=0
            )
        self._saved.check(report)
        return report.duration_s

    def check_continuation(self, client: Client, name: str) -> bool:
        """Whether greedy tokens behind the restored history are those behind a computed one."""
        token_count = len(self._saved.tokens)
        self._clear()
        self.restore(client, name)
        restored = self._continued(token_count)
        self._clear()
        return restored == self._continued(0)

    def _clear(self) -> None:
        """Nothing of an earlier restoration may pass for a part of this one."""
        self._cache.keys.fill_(0)
        self._cache.values.fill_(0)

    def _continued(self, cached_tokens: int) -> list[int]:
        """New tokens, where the first ``cached_tokens`` need not be computed."""
        tokens = [*self._saved.tokens, 0]
        history_tokens = len(tokens)
        while len(tokens) < history_tokens + NEW_TOKENS:
            stop = min(len(tokens), cached_tokens + TOKEN_BUDGET)
            segment = Segment(
                request_id=-1,
                first_row=0,
                token_count=stop - cached_tokens,
                first_position=cached_tokens,
                first_slot=0,
            )
            logits = self._model.forward(
                tokens[cached_tokens:stop],
                [segment],
                cache=self._cache,
                sink=NullSink(),
                logit_rows=[stop - cached_tokens - 1],
            )
            cached_tokens = stop
            if stop == len(tokens):
                tokens.append(int(logits[0].argmax()))
        return tokens[history_tokens:]


def _use(name: str, source: Source) -> str:
    return f"{name} {source}"
