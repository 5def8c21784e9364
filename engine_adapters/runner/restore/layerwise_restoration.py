"""One history that comes layer after layer, while new tokens are computed.

As AttentionStore does in section 3.2.1.
"""

from engine_adapters.reading.layer_reader import LayerReader
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, OpenLayers, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.patience import Patience
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat


class LayerwiseRestoration:
    """Each layer of all that is stored comes before the next one, into the cache as it arrives.

    Tokens after the history may be computed in the layers that it has already. It asks for no
    tokens of the history: whatever is lost, or has not come in ``wait_s_max``, is an ordinary
    prefill in the end. A lost chunk shortens the history, so that what was computed after it is
    worth nothing.
    """

    def __init__(
        self,
        reader: SpanReader,
        state_format: StateFormat,
        loader: LayerLoader,
        target: Target,
        options: RestoreOptions,
        *,
        wait_s_max: float,
    ) -> None:
        self._reader = reader
        self._layout = state_format.layout
        self._layers = LayerReader(reader, self._load, layer_count=self._layout.layer_count)
        self._loader = loader
        self._target = target
        self._clock = options.clock
        self._started_s = self._ended_s = self._clock()
        self._patience = Patience(wait_s_max, self._clock)
        self._is_over = False

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``: nothing counts as there before all layers are."""
        gate = self._layers.gate
        stop_token = 0 if gate is None else gate.stop_token
        return RestorationState(
            position=stop_token if self._is_over else 0,
            is_over=self._is_over,
            is_loading=not self._is_over,
            is_waiting=self._patience.is_waiting,
            open_layers=(
                OpenLayers(stop_token=stop_token, layers=gate.open_layers)
                if gate is not None and stop_token
                else None
            ),
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration``; never asks for tokens."""
        del token_budget
        slices_max = max(1, piece_tokens // self._layout.chunk_tokens) * self._layout.layer_count
        taken = self._layers.take(slices_max)
        if taken:
            self._patience.end_wait()
        elif not self._patience.remaining_s():
            self._layers.end()
        else:
            self._patience.begin_wait()
        gate = self._layers.gate
        if gate is None and self._patience.remaining_s():
            return 0
        if (gate is None or gate.is_done) and not self._is_over:
            self._patience.end_wait()
            self._loader.finish()
            self._ended_s = self._clock()
            self._is_over = True
        return 0

    def first_unstored(self) -> int:
        """As ``Restoration``."""
        if not self._is_over and (stored := self._reader.stored) is not None:
            return stored.prefix_chunks * self._layout.chunk_tokens
        return -(-self.state.position // self._layout.chunk_tokens) * self._layout.chunk_tokens

    def begin_step(self, token_count: int) -> None:
        """As ``Restoration``: while something is computed nothing is waited for."""
        del token_count
        self._patience.end_wait()

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``."""

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``, no longer than the store may still be waited for."""
        self._layers.wait(min(timeout_s, self._patience.remaining_s()))

    def report(self) -> RestoreReport:
        """As ``Restoration``."""
        device_bytes, dram_bytes = self._reader.read_bytes()
        ended_s = self._ended_s if self._is_over else self._clock()
        return RestoreReport(
            restored_tokens=self.state.position,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            waited_s=self._patience.waited_s,
            duration_s=ended_s - self._started_s,
            decode_s=self._reader.decode_s(),
        )

    def close(self) -> None:
        """As ``Restoration``."""
        self._reader.close()

    def _load(self, span: Span, layer: int, chunks: range) -> None:
        self._loader.load_pieces(span, layer, chunks, self._target)
