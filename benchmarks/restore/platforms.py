"""The machines of the paper (HCache, table 2 and section 6), and others by their numbers."""

import math
from dataclasses import dataclass, replace

from benchmarks.benchmark import BenchmarkError

LINK_EFFICIENCY = 0.82
"""What a PCIe link carries of its nominal rate: packets of 128 bytes with their headers,
checksums and acknowledgements. So an A100 reads 26.2 GB/s, and four SSDs of 27.6 GB/s
saturate it, as section 6.2.2 says. (Table 3's first two schedules hold from 0.80 to 0.84.)"""
SSD_BYTES_PER_S = 6.9e9
"""One PM9A3 (section 6.2.2)."""
_TERA, _GIGA = 1e12, 1e9
_SPEED_COUNTS = (2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A kind of GPU and what its states are read from: host DRAM, or SSDs.

    ``flops_per_s`` and ``link_bytes_per_s`` are nominal and those of one GPU; the SSDs are
    those of the whole machine.
    """

    name: str
    flops_per_s: float
    link_bytes_per_s: float
    ssd_count: int | None = None

    def read_bytes_per_s(self, gpu_count: int) -> float:
        """What all GPUs read together, each a part of its own."""
        links = gpu_count * self.link_bytes_per_s * LINK_EFFICIENCY
        return links if self.ssd_count is None else min(links, self.ssd_count * SSD_BYTES_PER_S)

    @property
    def storage(self) -> str:
        """What the states are read from."""
        return "DRAM" if self.ssd_count is None else f"{self.ssd_count} SSD"


def _table_2(name: str, tera_flops: float, link_gb_per_s: float) -> Platform:
    return Platform(
        name=name, flops_per_s=tera_flops * _TERA, link_bytes_per_s=link_gb_per_s * _GIGA
    )


A100 = _table_2("A100", 312, 32)
A30 = _table_2("A30", 165, 32)
RTX_4090 = _table_2("4090", 330, 32)
L20 = _table_2("L20", 120, 32)
H800 = _table_2("H800", 990, 64)
PLATFORMS = {platform.name: platform for platform in (A100, A30, RTX_4090, L20, H800)}


def platform_of(text: str) -> Platform:
    """``NAME[,SSDS]`` of the paper, or ``NAME,TFLOPS,GB_PER_S[,SSDS]``; raises BenchmarkError."""
    name, *words = text.split(",")
    numbers = _positive(words)
    if numbers is not None and len(numbers) in _SPEED_COUNTS:
        own = _table_2(name, numbers[0], numbers[1])
        return replace(own, ssd_count=_count(numbers[2:]))
    if numbers is not None and len(numbers) <= 1 and name in PLATFORMS:
        return replace(PLATFORMS[name], ssd_count=_count(numbers))
    raise BenchmarkError(
        f"{text!r} is no platform; name one of {', '.join(PLATFORMS)} with or without ',SSDS', "
        "or give NAME,TFLOPS,GB_PER_S with or without ',SSDS'"
    )


def _positive(words: list[str]) -> list[float] | None:
    """The numbers, or None where one is no finite number above 0."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return None
    return numbers if all(0 < number < math.inf for number in numbers) else None


def _count(numbers: list[float]) -> int | None:
    """SSDs, at least one where any are named."""
    return max(1, round(numbers[0])) if numbers else None
