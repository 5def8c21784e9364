"""What reads take while nothing but the store keeps more from coming."""

from engine_adapters.restore.layer_rates import LayerRates


class ReadMeter:
    """Tells ``rates``, where there are any, what reads of one restoration take. One thread only."""

    def __init__(self, rates: LayerRates | None, *, now_s: float) -> None:
        self._rates = rates
        self._was_reading = False
        self._arrived_bytes = 0
        self._arrived_s = now_s

    def observe(self, now_s: float, arrived_bytes: int, *, is_reading: bool) -> None:
        """``arrived_bytes`` have come in all, and it ``is_reading`` more or not."""
        came_bytes = arrived_bytes - self._arrived_bytes
        if self._rates is None or not came_bytes:
            return
        if self._was_reading and is_reading:
            self._rates.read(now_s - self._arrived_s, byte_count=came_bytes)
        self._arrived_bytes, self._arrived_s = arrived_bytes, now_s
        self._was_reading = is_reading
