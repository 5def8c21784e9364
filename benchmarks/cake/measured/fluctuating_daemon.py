"""``kvstored run`` on devices whose rate is drawn again every 100 ms (Cake, section 5.7).

``python -m benchmarks.cake.measured.fluctuating_daemon run --config FILE``: each device has the
usual throttle at ``io.device_bytes_per_s_max``, in a time that runs at a drawn share of the
real one. The draws follow the machine's monotonic clock, so that another process knows what
the device could give at any time (``device_rate``).
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from benchmarks.cake.fluctuation import Fluctuation
from kvstored.config import IoSection, load_config
from kvstored.daemon import run_daemon
from kvstored.io.device import Device
from kvstored.io.throttled import Clock, ThrottledDevice

MODULE = "benchmarks.cake.measured.fluctuating_daemon"
INTERVAL_S = 0.1
_SEED = 0
_SLEEP_S_MIN = 1e-6
"""What rounding leaves of a sleep would never pass if it were less than the clock can show."""


def device_rate(bytes_per_s_max: float) -> Fluctuation:
    """Bytes per second of a device by ``time.monotonic``."""
    return Fluctuation(_SEED, most=bytes_per_s_max, interval_s=INTERVAL_S)


class FluctuatingClock:
    """A time that passes at a drawn share of that of ``clock``. Thread-safe."""

    def __init__(self, share: Fluctuation, clock: Clock = time) -> None:
        """``share`` is from 0 to 1."""
        self._share = share
        self._clock = clock
        self._lock = Lock()
        self._real_s = clock.monotonic()
        self._own_s = 0.0

    def monotonic(self) -> float:
        """Seconds of this time since it began."""
        with self._lock:
            now_s = self._clock.monotonic()
            self._own_s += self._share.sum_between(self._real_s, now_s)
            self._real_s = now_s
            return self._own_s

    def sleep(self, seconds: float, /) -> None:
        """Waits for so many seconds of this time."""
        now_s = self._clock.monotonic()
        self._clock.sleep(max(_SLEEP_S_MIN, self._share.reached_s(now_s, seconds) - now_s))


def fluctuating(device: Device, settings: IoSection) -> Device:
    """The device with a rate from 0 to the configured one, which has to be there."""
    bytes_per_s = settings.device_bytes_per_s_max
    if bytes_per_s is None:
        raise ValueError("io.device_bytes_per_s_max is the highest rate of the device; set it")
    return ThrottledDevice(
        device,
        read_bytes_per_s=bytes_per_s,
        write_bytes_per_s=bytes_per_s,
        clock=FluctuatingClock(device_rate(1.0)),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves as ``kvstored run`` does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("run",))
    parser.add_argument("--config", type=Path, required=True)
    run_daemon(load_config(parser.parse_args(arguments).config), limit=fluctuating)


if __name__ == "__main__":
    main()
