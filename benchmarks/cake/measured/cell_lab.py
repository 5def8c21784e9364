"""One cell: Cake in turn with loading alone and computing alone, beside the oracle."""

from functools import partial

from benchmarks.cake.cell_setting import CellSetting
from benchmarks.cake.cell_times import CellTimes
from benchmarks.cake.measured.history import Restorer, StoredHistory, Taken
from benchmarks.cake.measured.stage import SlowDevice, Stage
from benchmarks.cake.traces import oracle_s
from benchmarks.interleave import Alternative, Measured, interleave
from engine_adapters.restore import ComputeCost
from engine_adapters.restore.oracle import elapsed_s
from engine_adapters.runner.cake_restorer import CakeRestorer

CAKE, LOAD = "cake", "load"
USES = (CAKE, LOAD)
CAKE_PARTS = ("opening", "forward", "last", "waited", "taking")
"""What a restoration's time consists of; the wait contains the opening's, and all forward passes
the last one."""


class CellLab:
    """Measures one cell on a device that serves already. Used once.

    All rounds share one Cake restorer, as all requests of an engine do: the round that is
    not counted tells it how fast both sides are.
    """

    def __init__(
        self,
        stage: Stage,
        setting: CellSetting,
        stored: StoredHistory,
        *,
        compute: ComputeCost,
        bytes_per_s: float,
    ) -> None:
        self._stage = stage
        self._setting = setting
        self._stored = stored
        self._compute = compute
        self._bytes_per_s = bytes_per_s
        self._loaded: list[Taken] = []
        self._computed: list[Taken] = []
        self._generated: set[tuple[int, ...]] = set()

    def measure(self, device: SlowDevice) -> CellTimes:
        """Raises BenchmarkError."""
        setting, stored = self._setting, self._stored
        cake = stored.cake_restorer(
            device.client,
            CAKE,
            compute=self._compute,
            bytes_per_s=self._bytes_per_s,
            token_budget=setting.token_budget,
        )
        samples = interleave(
            [
                [
                    Alternative(run=partial(self._cake, cake)),
                    Alternative(run=partial(self._load, device)),
                    Alternative(run=self._alone),
                ]
            ],
            rounds=self._stage.scale.rounds,
            generator=self._stage.settings.random(),
            announce=lambda text: self._stage.announce(f"{setting.name}: {text}"),
            prepare=device.forget,
        )
        return CellTimes(
            cake_s=samples["cake_s"],
            load_s=samples["load_s"],
            compute_s=samples["compute_s"],
            oracle_s=self._oracles(len(samples["cake_s"])),
            were_equal=len(self._generated) == 1,
            cake_parts_s={name: samples[name] for name in CAKE_PARTS},
        )

    def _cake(self, restorer: CakeRestorer) -> Measured:
        taken = self._taken(restorer)
        parts = {name: getattr(taken, f"{name}_s") for name in CAKE_PARTS}
        return {"cake_s": taken.ttft_s, **parts}

    def _load(self, device: SlowDevice) -> Measured:
        self._loaded.append(self._taken(self._stored.load_restorer(device.client, LOAD)))
        return {"load_s": self._loaded[-1].ttft_s}

    def _alone(self) -> Measured:
        self._computed.append(self._taken(None))
        return {"compute_s": self._computed[-1].ttft_s}

    def _taken(self, restorer: Restorer | None) -> Taken:
        taken = self._stored.take(
            restorer,
            token_budget=self._setting.token_budget,
            others_tokens=self._setting.others_tokens,
        )
        self._generated.add(taken.completion.generated_ids)
        return taken

    def _oracles(self, round_count: int) -> tuple[float, ...]:
        """Of each counted round, by what its two baselines took in the same round."""
        return tuple(
            self._oracle_s(loaded, computed)
            for loaded, computed in zip(
                self._loaded[-round_count:], self._computed[-round_count:], strict=True
            )
        )

    def _oracle_s(self, loaded: Taken, computed: Taken) -> float:
        restore_s = loaded.completion.restore.duration_s
        chunk_s = restore_s / self._stored.chunk_count
        return oracle_s(
            computed.trace,
            elapsed_s([chunk_s] * self._stored.chunk_count),
            chunk_tokens=self._stored.chunk_tokens,
            alone_s=computed.ttft_s,
            rest_s=loaded.ttft_s - restore_s,
        )
