"""What reads and computation take at the same time: on few cores each slows the other down."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean

from benchmarks.restore.measured.restored_layers import RestoredLayers
from engine_adapters.restore import LayerCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideCosts:
    """Seconds of one layer while the other side is busy, and how much longer computing takes.

    ``hidden_beside_project_s`` is reading hidden states while others are projected,
    ``project_beside_hidden_s`` projecting them meanwhile, and so on. ``compute_slowdown`` is
    computing a layer from tokens beside a read, over computing it alone.
    """

    hidden_beside_project_s: float
    kv_beside_project_s: float
    hidden_beside_compute_s: float
    project_beside_hidden_s: float
    compute_slowdown: float

    def duration_s(self, layers: RestoredLayers, costs: LayerCosts) -> float:
        """The longer side of a restoration where both are always busy; no pipeline is shorter.

        Reads run beside computing first, then beside projecting.
        """
        computed_s = layers.computed * costs.compute_s * self.compute_slowdown
        first = min(layers.hidden, computed_s / self.hidden_beside_compute_s)
        reads_s = first * self.hidden_beside_compute_s
        reads_s += (layers.hidden - first) * self.hidden_beside_project_s
        reads_s += layers.kv * self.kv_beside_project_s
        made_s = computed_s + layers.hidden * self.project_beside_hidden_s
        made_s += layers.kv * costs.load_s
        return max(reads_s, made_s)


def beside(read: Callable[[], float], work: Callable[[], float]) -> tuple[float, float]:
    """What a read in a thread tells, and the mean of what work tells until it has ended."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        reading = executor.submit(read)
        seconds = [work()]
        while not reading.done():
            seconds.append(work())
        return reading.result(), fmean(seconds)
