"""How much is measured."""

from dataclasses import dataclass

from benchmarks.interleave import Rounds
from benchmarks.storage.space import device_bytes
from benchmarks.workload import GIB, KIB, MIB, Workload

ORDER_COUNT = 3
"""Reading orders: each has a sequence of its own, because a second read is not cold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes and rounds of every part; ``_bytes`` are of payload.

    ``rounds`` are those of the parts that compare with fio and memcpy and of warm gets,
    ``slow_rounds`` those of the others.
    """

    rounds: Rounds
    slow_rounds: Rounds
    sweep_rounds: Rounds
    call_bytes: int
    """One cold read, put or hit."""
    layer_count: int
    get_chunks: int
    """Chunks of each size that are read one by one in a round."""
    get_layer_count: int
    scaling_bytes: int
    """A long sequence on throttled devices."""
    overtaken_bytes: int
    client_count: int
    client_sequences: int
    """Sequences that each of many clients reads, one after the other."""
    sequence_bytes: int
    """What one client process reads at once; eight such arenas fit into 1200 MiB."""
    small_calls_s: float
    """How long small calls are made beside large ones of one kind."""
    mixed_sequences: int
    """Sequences that one client reads while another puts."""
    curve_bytes: int
    curve_slices: tuple[int, ...]
    large_slab_bytes: int = 256 * MIB
    """For chunks of 32 MiB, which would take twice their bytes in slabs of the default size."""
    put_alone_s: float = 2.0
    """How long puts run that no reads run beside."""
    fio_request_bytes: tuple[int, ...] = (256 * KIB, MIB, 2 * MIB)
    """The size of a slice, the usual one, and the transfers into which slices are merged."""
    fio_depths: tuple[int, ...] = (16, 32)
    fio_jobs: tuple[int, ...] = (1, 2)

    def call_workload(self, slice_bytes: int) -> Workload:
        """The chunks of one cold read, put or hit."""
        return Workload.of_payload(
            self.call_bytes, slice_bytes=slice_bytes, layer_count=self.layer_count
        )

    @property
    def scratch_bytes(self) -> int:
        """What the largest part needs beside fio's file, and some for index and logs."""
        cold = [self.call_workload(size) for size in (256 * KIB, MIB) for _ in range(ORDER_COUNT)]
        sequence = Workload.of_payload(
            self.sequence_bytes, slice_bytes=256 * KIB, layer_count=self.layer_count
        )
        clients = [sequence] * self.client_count * self.client_sequences
        devices = max(device_bytes(cold, 2, self.large_slab_bytes), device_bytes(clients, 2))
        return 2 * devices + self.call_bytes + GIB // 2


FULL = Scale(
    rounds=Rounds(count=9, count_min=7, time_limit_s=240.0),
    slow_rounds=Rounds(count=7, count_min=7, time_limit_s=0.0),
    sweep_rounds=Rounds(count=3, count_min=1, time_limit_s=25.0),
    call_bytes=GIB,
    layer_count=32,
    get_chunks=104,
    get_layer_count=32,
    scaling_bytes=256 * MIB,
    overtaken_bytes=256 * MIB,
    client_count=8,
    client_sequences=6,
    sequence_bytes=128 * MIB,
    small_calls_s=4.0,
    mixed_sequences=24,
    curve_bytes=512 * MIB,
    curve_slices=(16 * KIB, 32 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB),
)
QUICK = Scale(
    rounds=Rounds(count=7, count_min=7, time_limit_s=0.0),
    slow_rounds=Rounds(count=3, count_min=3, time_limit_s=0.0),
    sweep_rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
    call_bytes=256 * MIB,
    layer_count=32,
    get_chunks=24,
    get_layer_count=32,
    scaling_bytes=96 * MIB,
    overtaken_bytes=128 * MIB,
    client_count=8,
    client_sequences=1,
    sequence_bytes=128 * MIB,
    small_calls_s=0.7,
    mixed_sequences=8,
    curve_bytes=128 * MIB,
    curve_slices=(16 * KIB, 256 * KIB, 4 * MIB),
    fio_request_bytes=(256 * KIB, 2 * MIB),
    fio_depths=(32,),
)
