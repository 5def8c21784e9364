"""How much is measured on a GPU, in a hurry, on CPUs, and by a test."""

from dataclasses import dataclass, replace

from benchmarks.gpu.shapes import LLAMA_2_7B, LLAMA_3_8B, OPT_13B, LayerShape

GB = 1_000_000_000
DRAM = "dram"
CPU_DIVISOR = 16
GPU_TESTS = (
    "tests/engine_adapters/device_copies/test_copies.py",
    "tests/engine_adapters/runner/test_bfloat16.py",
    "tests/engine_adapters/vllm/worker_side/test_captured_forwards.py",
    "tests/system/test_devices.py",
)
"""Files with tests that are marked ``gpu``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRate:
    """How fast a history is read: from a device at that rate, or from the daemon's DRAM.

    For DRAM ``bytes_per_s`` is only what is expected when it is planned what to store.
    """

    name: str
    bytes_per_s: float

    @property
    def is_dram(self) -> bool:
        """Whether no device takes part."""
        return self.name == DRAM


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What all parts measure.

    ``needs_s`` says what each part takes about, in the order in which they run. A later part has
    its time reserved; ``restore`` is divided evenly among the models.
    """

    shapes: tuple[LayerShape, ...]
    layers_max: int
    token_counts: tuple[int, ...]
    """Ascending."""
    rates: tuple[DeviceRate, ...]
    rounds: int
    saved_bytes_max: int
    """Of all layouts of one history."""
    arena_bytes: int
    elsewhere_max: float
    """Share of a history that may come from where it should not: a daemon keeps a few chunks in
    DRAM, and writes what it was given a little later. A rehearsal's histories have no more.
    """
    step_tokens: int
    """Prompt tokens of one step of the engine: with few of them a GPU waits for its launches."""
    batch_sizes: tuple[int, ...]
    decode_history_tokens: int
    decode_cycles: int
    copied_bytes: int
    storage_parts: tuple[str, ...]
    tests: tuple[str, ...]
    """Folders or files whose marked tests run."""
    needs_s: dict[str, float]
    limit_s: float


def _throttled(*gb_per_s: float) -> tuple[DeviceRate, ...]:
    return tuple(
        DeviceRate(name=f"{rate:g}gb_s".replace(".", "_"), bytes_per_s=rate * GB)
        for rate in gb_per_s
    )


FULL = Scale(
    shapes=(LLAMA_2_7B, LLAMA_3_8B, OPT_13B),
    layers_max=80,
    token_counts=(1024, 2048, 4096, 8192, 16384, 32768),
    rates=(*_throttled(1, 2, 4), DeviceRate(name=DRAM, bytes_per_s=12 * GB)),
    rounds=2,
    saved_bytes_max=16 * GB,
    # Half of it is for spans of a restoration, of which two are to be on their way: one of many
    # layers has nearly half a gibibyte.
    arena_bytes=1 << 31,
    elsewhere_max=0.13,
    step_tokens=2048,
    batch_sizes=(1, 8, 32),
    decode_history_tokens=1024,
    decode_cycles=4,
    copied_bytes=1 << 28,
    storage_parts=(
        *("dram_hits", "chunk_latency", "clients", "fairness", "mixed"),
        *("cold_reads", "durable_puts"),
    ),
    tests=GPU_TESTS,
    needs_s={"copies": 20, "tests": 60, "decode": 100, "restore": 240, "daemon": 90},
    limit_s=525.0,
)
"""Ends with a quarter of a minute to spare of nine minutes: a part that has begun is not cut."""

QUICK = replace(
    FULL,
    # Few long histories have room for few layers, of which what every restoration begins with is a
    # large part.
    token_counts=(1024, 4096),
    rates=(*_throttled(2, 4), DeviceRate(name=DRAM, bytes_per_s=12 * GB)),
    saved_bytes_max=8 * GB,
    storage_parts=("dram_hits", "chunk_latency"),
    needs_s={"copies": 10, "tests": 40, "decode": 60, "restore": 140, "daemon": 30},
    limit_s=300.0,
)

CPU = replace(
    FULL,
    shapes=tuple(shape.smaller(CPU_DIVISOR) for shape in FULL.shapes),
    layers_max=4,
    token_counts=(256, 512),
    rates=(*_throttled(0.1), DeviceRate(name=DRAM, bytes_per_s=GB)),
    rounds=1,
    saved_bytes_max=GB,
    arena_bytes=1 << 26,
    elsewhere_max=1.0,
    step_tokens=512,
    batch_sizes=(1, 8),
    decode_history_tokens=64,
    decode_cycles=2,
    copied_bytes=1 << 22,
    storage_parts=("dram_hits",),
    needs_s={"copies": 2, "tests": 60, "decode": 10, "restore": 60, "daemon": 30},
    limit_s=300.0,
)
"""A rehearsal: the same code, whose figures say nothing of a GPU."""
