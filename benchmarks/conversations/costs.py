"""What computing costs here, and which device takes as long."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

from engine_adapters.restore import ComputeCost, LayerCosts, LayerRates
from engine_adapters.restore.least_squares import fit
from engine_adapters.runner.calibrate.compute_costs import ComputeTimer, Loading, Projection
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.states.state_format import shape_of

REPEATS = 5
PLANNED_TOKENS = 1024
COMPUTED_TOKENS = (64, 256, 1024, 2048)
"""Histories by which computing is timed; a turn has as few new tokens as the shortest."""
MIB = 1024 * 1024
ALIGNMENT_BYTES = 4096
"""Of a chunk's header."""
CHUNK_TOKENS = 32
"""Every conversation that goes on has an open chunk in DRAM, of which there is little here."""
SLAB_CHUNKS = 2
"""That a slab has room for at least: DRAM is cut into slabs as well, and token ids need one."""
SPARE_SLABS = 8
"""Slabs that are being filled, and what a device keeps for itself."""


class Costs:
    """Of a model with the threads that torch has now; one thread only."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._shape = shape_of(model)
        self.compute = _compute_cost(model)
        load = Loading(
            model, chunk_count_max=PLANNED_TOKENS // CHUNK_TOKENS, chunk_tokens=CHUNK_TOKENS
        )
        self._take_s = _median_s(partial(load, PLANNED_TOKENS))
        project = Projection(model, token_count_max=PLANNED_TOKENS)
        self._project_s = _median_s(partial(project, PLANNED_TOKENS))

    @property
    def layer_count(self) -> int:
        """Of the model."""
        return self._shape.layer_count

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token in all layers."""
        return self._shape.layer_count * self._shape.kv_bytes

    @property
    def slab_bytes(self) -> int:
        """Of a device for this model's chunks."""
        chunk_bytes = CHUNK_TOKENS * self.token_bytes + ALIGNMENT_BYTES
        return -(-SLAB_CHUNKS * chunk_bytes // MIB) * MIB

    def slabs_bytes(self, byte_count: int) -> int:
        """So many bytes as whole slabs, with some to spare."""
        return (-(-byte_count // self.slab_bytes) + SPARE_SLABS) * self.slab_bytes

    def prefill_s(self, history_tokens: int, new_tokens: int) -> float:
        """T_pref L_new: computing so many tokens after a history that is there."""
        segment = Segment(
            request_id=-1,
            first_row=0,
            token_count=new_tokens,
            first_position=history_tokens,
            first_slot=0,
        )
        cache = self._model.make_cache(history_tokens + new_tokens)
        return _median_s(
            lambda: self._model.forward(
                [0] * new_tokens,
                [segment],
                cache=cache,
                sink=NullSink(),
                logit_rows=[new_tokens - 1],
            )
        )

    def bytes_per_s(self, history_tokens: int, new_tokens: int, *, load_share: float) -> float:
        """The device from which loading takes ``load_share`` times as long as prefill."""
        load_s = load_share * self.prefill_s(history_tokens, new_tokens)
        return history_tokens * self.token_bytes / load_s

    def rates(self, bytes_per_s: float) -> LayerRates:
        """What a window is expected to take from such a device."""
        tokens, shape = PLANNED_TOKENS, self._shape
        costs = LayerCosts(
            io_hidden_s=tokens * shape.hidden_bytes / bytes_per_s,
            io_kv_s=tokens * shape.kv_bytes / bytes_per_s,
            compute_s=self.compute.compute_s(0, tokens, TOKEN_BUDGET) / shape.layer_count,
            project_s=self._project_s,
            load_s=self._take_s,
        )
        return LayerRates(costs, tokens, hidden_bytes=shape.hidden_bytes, kv_bytes=shape.kv_bytes)


def _compute_cost(model: Model) -> ComputeCost:
    """As a calibrated engine knows it: attention is most of what a long history costs here."""
    timer = ComputeTimer(model, repeats=REPEATS)
    curve = fit(timer.recompute(COMPUTED_TOKENS, step_tokens=TOKEN_BUDGET), degree=2)
    return ComputeCost.of_curve(curve, model.config.layer_count)


def _median_s(work: Callable[[], object]) -> float:
    """After one call that does not count."""
    work()
    taken = []
    for _ in range(REPEATS):
        started_s = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started_s)
    return median(taken)
