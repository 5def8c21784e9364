"""New tokens of one request that are computed while the layers of its history come."""

from collections.abc import Sequence

from torch import Tensor

from engine_adapters.runner.engine.restoration import OpenLayers
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment, StateSink


class _Recorder(NullSink):
    """Keeps what a pass shows until it is known that the pass counts.

    Other steps may end meanwhile, and a sink sees one step at a time.
    """

    def __init__(self) -> None:
        self._taken: list[tuple[int, Tensor, Tensor, Tensor]] = []

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        self._taken.append((layer, hidden, keys, values))

    def show(self, segments: Sequence[Segment], sink: StateSink) -> None:
        sink.begin_step(segments)
        for taken in self._taken:
            sink.take(*taken)
        sink.end_step()


class LayeredPrefill:
    """A pass over one segment, which rests at the first layer whose gate is closed.

    Nothing waits in it, so that its thread goes on with other work. One thread only.
    """

    def __init__(
        self, model: Model, token_ids: Sequence[int], segment: Segment, *, cache: KvCache
    ) -> None:
        """``token_ids`` are those of the segment."""
        self.segment = segment
        self._recorder = _Recorder()
        self._layer_count = model.config.layer_count
        self._pass = model.begin_pass(token_ids, [segment], cache=cache, sink=self._recorder)

    @property
    def next_layer(self) -> int:
        """The first layer that was not computed."""
        return self._pass.next_layer

    @property
    def is_done(self) -> bool:
        """Whether all layers were computed."""
        return self.next_layer == self._layer_count

    def follows(self, history: OpenLayers | None) -> bool:
        """Whether its tokens are still those after the history: nothing of that was lost."""
        segment = self.segment
        return (
            history is not None
            and history.dropped_count == segment.dropped_count
            and history.stop_token == segment.stop_token - segment.token_count
        )

    def run(self, layer_count: int) -> None:
        """Computes its tokens in so many more layers."""
        self._pass.run(self.next_layer + layer_count)

    def show(self, sink: StateSink) -> None:
        """Shows the sink all layers, as one step."""
        self._recorder.show([self.segment], sink)

    def logits(self) -> Tensor:
        """Of the last token: [1, vocab_size]."""
        return self._pass.logits([self.segment.token_count - 1])
