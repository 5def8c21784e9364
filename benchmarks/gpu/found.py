"""What one history took in each way, and the ratios that count. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_adapters.restore import LayerCosts, Mode, best_bound_s

MARGINS_MIN = {"bfloat16": 0.1, "float32": 1e-3}
"""Standard deviations of all logits. Of tokens that are nearer to each other rounding decides: in
bfloat16 states that were computed in steps of another length are a few hundredths apart."""
WAYS = (Mode.RECOMPUTE, Mode.KV, Mode.HIDDEN, Mode.HCACHE, Mode.CAKE, Mode.AUTO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model, one rate and one length: seconds of each round.

    ``ttft_s`` are those to the first token, ``restored_s`` those of the restoration alone.
    ``costs`` are those of one layer of the whole history, ``oracle_s`` what the best meeting of
    computing and loading would have taken in each round. ``equal`` counts ways that went on with
    the same tokens as computing, of ``compared``: those where computing chose a first token by a
    clear margin. ``cake_waited_s`` are the seconds in which ``cake`` could do nothing, and
    ``cake_loaded_tokens`` what it did not compute.
    """

    model: str
    rate: str
    token_count: int
    layer_count: int
    costs: LayerCosts
    ttft_s: Mapping[Mode, tuple[float, ...]]
    restored_s: Mapping[Mode, tuple[float, ...]]
    oracle_s: tuple[float, ...]
    equal: int
    compared: int
    cake_waited_s: tuple[float, ...]
    cake_loaded_tokens: tuple[float, ...]

    @property
    def name(self) -> str:
        """For the keys of its series."""
        return f"{self.model}_{self.rate}_{self.token_count}"

    @property
    def sentence(self) -> str:
        """Medians, for people who wait."""
        medians = {way: statistics.median(values) for way, values in self.ttft_s.items()}
        ways = ", ".join(f"{way} {seconds:.3f}" for way, seconds in medians.items())
        return f"{ways} s; hcache {self.hcache_vs_bound:.2f} of its bound"

    @property
    def bound_s(self) -> float:
        """The least max(IO, compute) of any division of the layers (HCache, section 4.1)."""
        return best_bound_s(self.costs, self.layer_count)

    @property
    def hcache_vs_bound(self) -> float:
        """The restoration of ``hcache`` over the bound."""
        return statistics.median(self.restored_s[Mode.HCACHE]) / self.bound_s

    @property
    def cake_vs_oracle(self) -> float:
        """``cake`` over the best meeting point of the same round."""
        pairs = zip(self.ttft_s[Mode.CAKE], self.oracle_s, strict=True)
        return statistics.median(ours / best for ours, best in pairs)

    def faster(self, mode: Mode, than: Mode) -> float:
        """How many times as fast to the first token, by the median of the rounds."""
        pairs = zip(self.ttft_s[than], self.ttft_s[mode], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)


def are_equal(
    ours: Sequence[int], computed: Sequence[int], margins: Sequence[float], dtype: str
) -> bool | None:
    """Whether tokens are those that computing chose, as far as it chose by a clear margin.

    After a token that rounding has decided all are others. None where the first one is such.
    """
    unclear = (place for place, margin in enumerate(margins) if margin < MARGINS_MIN[dtype])
    clear_count = next(unclear, len(margins))
    return ours[:clear_count] == computed[:clear_count] if clear_count else None


def cell_seconds(costs: LayerCosts, layer_count: int) -> float:
    """What one round of a cell takes about: each way as long as its slower side, and some.

    Nothing takes longer than computing everything beside loading all keys and values.
    """
    computing_s, kv_s = costs.compute_s * layer_count, costs.io_kv_s * layer_count
    hidden_s = max(costs.io_hidden_s, costs.project_s) * layer_count
    cake_s = min(computing_s, kv_s)
    return computing_s + kv_s + 3 * hidden_s + cake_s
