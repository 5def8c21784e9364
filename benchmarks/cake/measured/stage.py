"""Where a part of the benchmark plays: folder, models, and daemons on one slow device."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.cake.measured.fluctuating_daemon import MODULE as FLUCTUATING_DAEMON
from benchmarks.cake.measured.history import StoredHistory
from benchmarks.cake.measured.scale import Scale
from benchmarks.cake.measured.shared_model import SharedModel
from benchmarks.daemon_process import DaemonOptions, DaemonProcess
from kvstored_client import RAW, Client

MIB = 1024 * 1024
DEVICE_BYTES = 1024 * MIB
SLAB_BYTES = 8 * MIB
SAVING_DRAM_BYTES = 256 * MIB
RESTORING_DRAM_BYTES = 8 * MIB
"""Room for a chunk or a few: restorations come from the device."""
ARENA_BYTES = 192 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all parts share. ``models`` are MHA and GQA."""

    settings: Settings
    scale: Scale
    folder: Path
    mha: SharedModel
    gqa: SharedModel

    def history(
        self, token_count: int, *, is_grouped: bool = False, codec: str = RAW
    ) -> StoredHistory:
        """Tokens drawn from the seed, the same ones for a length."""
        model = self.gqa if is_grouped else self.mha
        generator = random.Random(f"{self.settings.seed} {token_count}")
        tokens = [generator.randrange(model.config.vocab_size) for _ in range(token_count)]
        return StoredHistory(model, tokens, chunk_tokens=self.scale.chunk_tokens, codec=codec)

    def announce(self, text: str) -> None:
        """Tells how far it is."""
        self.settings.console.print(text, highlight=False)


def save(stored: StoredHistory, folder: Path, uses: Sequence[str]) -> None:
    """Formats a device in ``folder`` and stores the history on it for each use."""
    with _daemon(_options(folder, SAVING_DRAM_BYTES)) as (_, client):
        stored.save(client, uses)


@contextmanager
def slow_device(
    folder: Path, bytes_per_s: float, *, is_fluctuating: bool = False, depth: int | None = None
) -> Iterator["SlowDevice"]:
    """Serves a device that was saved on, limited to a rate, or to one from 0 to that rate."""
    options = _options(
        folder,
        RESTORING_DRAM_BYTES,
        bytes_per_s=int(bytes_per_s),
        run_module=FLUCTUATING_DAEMON if is_fluctuating else "kvstored",
        depth=depth,
    )
    with _daemon(options) as (daemon, client):
        yield SlowDevice(daemon, client)


class SlowDevice:
    """A daemon on a limited device, and a client of it."""

    def __init__(self, daemon: DaemonProcess, client: Client) -> None:
        self.client = client
        self._daemon = daemon
        self._is_fresh = True

    def forget(self) -> None:
        """Restarts the daemon: nothing is in its DRAM, and nothing counts as read before.

        Only the first call, after its start, has nothing to do.
        """
        if self._is_fresh:
            self._is_fresh = False
            return
        self._daemon.restart()
        if not self.client.available():
            raise BenchmarkError("the daemon is not there after its restart")


def _options(
    folder: Path,
    dram_bytes: int,
    *,
    bytes_per_s: int | None = None,
    run_module: str = "kvstored",
    depth: int | None = None,
) -> DaemonOptions:
    return DaemonOptions(
        folder=folder,
        device_bytes=DEVICE_BYTES,
        dram_bytes=dram_bytes,
        slab_bytes=SLAB_BYTES,
        arena_bytes_max=ARENA_BYTES,
        device_count=1,
        device_bytes_per_s_max=bytes_per_s,
        is_formatted=bytes_per_s is not None,
        run_module=run_module,
        depth_per_device=depth,
    )


@contextmanager
def _daemon(options: DaemonOptions) -> Iterator[tuple[DaemonProcess, Client]]:
    with (
        DaemonProcess(options) as daemon,
        Client(
            str(options.socket),
            arena_bytes=str(ARENA_BYTES),
            name="cake",
            reconnect_interval_s=0.0,
        ) as client,
    ):
        if not client.available():
            raise BenchmarkError("the daemon is not there after its start")
        yield daemon, client
