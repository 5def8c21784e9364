"""One cell: Cake in turn with loading alone and computing alone, beside the oracle."""

from functools import partial

from benchmarks.cake.cell_setting import CellSetting
from benchmarks.cake.cell_times import CellTimes
from benchmarks.cake.measured.history import CakeHistory, Taken
from benchmarks.cake.measured.stage import Stage, forget
from benchmarks.interleave import Alternative, Measured, Rounds
from benchmarks.kit.slow_machine import SlowDevice
from engine_adapters.restore import ComputeCost
from engine_adapters.runner.restore.restorer import Restorer

CAKE, LOAD, BESIDE = "cake", "load", "beside"
USES = (CAKE, LOAD, BESIDE)
CAKE_PARTS = ("opening", "forward", "last", "waited", "taking", "decode")
"""What a restoration's time consists of; the wait contains the opening's, and all forward passes
the last one. Decoding goes on beside all of them."""

DOUBTFUL = 0.95
"""Cake over the better baseline: a cell in which both are as fast, or nearly so, is measured
again, on whichever side of 1 it seems to be."""


class CellLab:
    """Measures one cell on a device that serves already. Used once.

    All rounds share one Cake restorer, as all requests of an engine do: the round that is
    not counted tells it how fast both sides are. Where a baseline seems to be about as fast,
    more rounds are measured, and all of them count.
    """

    def __init__(
        self,
        stage: Stage,
        setting: CellSetting,
        stored: CakeHistory,
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
        setting = self._setting
        cake = self._stored.cake_restorer(
            device.client,
            CAKE,
            compute=self._compute,
            bytes_per_s=self._bytes_per_s,
            token_budget=setting.token_budget,
        )
        times = self._rounds(device, cake, self._stage.scale.rounds)
        if times.to_best_baseline > DOUBTFUL:
            times = times.joined(self._rounds(device, cake, self._stage.scale.more_rounds))
        return times

    def _rounds(self, device: SlowDevice, cake: Restorer, rounds: Rounds) -> CellTimes:
        """Rounds of all three ways, and one of both sides beside each other."""
        samples = self._stage.interleave(
            self._setting.name,
            [
                Alternative(run=partial(self._cake, cake)),
                Alternative(run=partial(self._load, device)),
                Alternative(run=self._alone),
            ],
            rounds=rounds,
            prepare=lambda: forget(device, self._stored, USES),
        )
        # Each counted round by what its two baselines took in the same round.
        count = len(samples["cake_s"])
        baselines = list(zip(self._loaded[-count:], self._computed[-count:], strict=True))
        return CellTimes(
            cake_s=samples["cake_s"],
            load_s=samples["load_s"],
            compute_s=samples["compute_s"],
            oracle_s=tuple(self._oracle_s(*each) for each in baselines),
            nominal_oracle_s=tuple(self._nominal_oracle_s(*each) for each in baselines),
            beside_oracle_s=(self._beside_oracle_s(device, self._loaded[-1]),),
            were_equal=len(self._generated) == 1,
            cake_parts_s={name: samples[name] for name in CAKE_PARTS},
        )

    def _cake(self, restorer: Restorer) -> Measured:
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

    def _oracle_s(self, loaded: Taken, computed: Taken) -> float:
        load_s = loaded.completion.restore.duration_s
        return self._stored.oracle_s(computed, load_s=load_s, rest_s=_rest_s(loaded))

    def _nominal_oracle_s(self, loaded: Taken, computed: Taken) -> float:
        """As if the bytes that loading alone moved came at the device's rate, and cost no more."""
        load_s = loaded.completion.restore.device_bytes / self._bytes_per_s
        return self._stored.oracle_s(computed, load_s=load_s, rest_s=_rest_s(loaded))

    def _beside_oracle_s(self, device: SlowDevice, loaded: Taken) -> float:
        """By what computing and loading take at the same time, in threads of one process."""
        device.forget()
        computed, load_s = self._stored.compute_beside_load(
            self._stored.load_restorer(device.client, BESIDE),
            token_budget=self._setting.token_budget,
            others_tokens=self._setting.others_tokens,
        )
        return self._stored.oracle_s(computed, load_s=load_s, rest_s=_rest_s(loaded))


def _rest_s(loaded: Taken) -> float:
    """What the step after a history takes that was loaded."""
    return loaded.ttft_s - loaded.completion.restore.duration_s
