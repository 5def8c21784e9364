"""Where a part of the benchmark plays: folder, models, and daemons on one slow device."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.benchmark import Settings
from benchmarks.cake.measured.fluctuating_daemon import MODULE as FLUCTUATING_DAEMON
from benchmarks.cake.measured.history import CakeHistory
from benchmarks.cake.measured.scale import Scale
from benchmarks.cake.measured.shared_model import SharedModel
from benchmarks.interleave import Group, Rounds, interleave
from benchmarks.kit.daemon_process import DaemonOptions
from benchmarks.kit.slow_machine import SlowDevice, SlowMachine
from benchmarks.scratch import scratch_folder
from kvstored_client import RAW

MIB = 1024 * 1024
DEVICE_BYTES = 1024 * MIB
SLAB_BYTES = 8 * MIB
SAVING_DRAM_BYTES = 256 * MIB
RESTORING_DRAM_BYTES = 8 * MIB
"""Room for a chunk or a few: restorations come from the device."""
ARENA_BYTES = 192 * MIB


def forget(device: SlowDevice, stored: CakeHistory, uses: Sequence[str]) -> None:
    """A round begins: nothing is in DRAM, and what a new daemon does once is nobody's."""
    device.forget()
    stored.ask_for_nothing(device.client, uses)


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
    ) -> CakeHistory:
        """Tokens drawn from the seed, the same ones for a length."""
        model = self.gqa if is_grouped else self.mha
        generator = random.Random(f"{self.settings.seed} {token_count}")
        tokens = [generator.randrange(model.config.vocab_size) for _ in range(token_count)]
        return CakeHistory(model, tokens, chunk_tokens=self.scale.chunk_tokens, codec=codec)

    def announce(self, text: str) -> None:
        """Tells how far it is."""
        self.settings.console.print(text, highlight=False)

    def interleave(
        self, name: str, group: Group, *, rounds: Rounds, prepare: Callable[[], None]
    ) -> dict[str, tuple[float, ...]]:
        """Runs all rounds of what ``name`` compares."""
        return interleave(
            [group],
            rounds=rounds,
            # Else every cell would have the same way first in the same round.
            generator=random.Random(f"{self.settings.seed} {name}"),
            announce=lambda text: self.announce(f"{name}: {text}"),
            prepare=prepare,
        )

    @contextmanager
    def stored_slowly(
        self,
        stored: CakeHistory,
        uses: Sequence[str],
        bytes_per_s: float,
        *,
        is_fluctuating: bool = False,
        depth: int | None = None,
    ) -> Iterator[SlowDevice]:
        """A history on a device that is limited to a rate, or to one from 0 to that rate."""
        module = FLUCTUATING_DAEMON if is_fluctuating else "kvstored"
        with scratch_folder(self.folder, 0) as folder:
            machine = slow_machine(folder)
            with machine.saving() as client:
                stored.save(client, uses)
            with machine.restoring(bytes_per_s, run_module=module, depth=depth) as device:
                yield device


def slow_machine(folder: Path) -> SlowMachine:
    """One device in ``folder``, saved on before anything is restored from it."""
    options = DaemonOptions(
        folder=folder,
        device_bytes=DEVICE_BYTES,
        dram_bytes=SAVING_DRAM_BYTES,
        arena_bytes_max=ARENA_BYTES,
        device_count=1,
        slab_bytes=SLAB_BYTES,
    )
    return SlowMachine(options, restoring_dram_bytes=RESTORING_DRAM_BYTES, name="cake")
