import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.storage.evidence import Tier, require_tier
from kvstored_client import ReadReport


def report(*, device_bytes: int, dram_bytes: int) -> ReadReport:
    return ReadReport(
        resident=(True,),
        resident_prefix=1,
        device_bytes=device_bytes,
        dram_bytes=dram_bytes,
        finished=True,
    )


def test_bytes_from_the_tier_that_is_measured_count() -> None:
    require_tier(report(device_bytes=104, dram_bytes=0), 100, Tier.DEVICES)
    require_tier(report(device_bytes=0, dram_bytes=100), 100, Tier.DRAM)


@pytest.mark.parametrize(
    ("device_bytes", "dram_bytes", "tier"),
    [(100, 1, Tier.DEVICES), (99, 0, Tier.DEVICES), (1, 100, Tier.DRAM), (0, 99, Tier.DRAM)],
)
def test_bytes_from_another_tier_are_no_figure(
    device_bytes: int, dram_bytes: int, tier: Tier
) -> None:
    with pytest.raises(BenchmarkError, match="another figure"):
        require_tier(report(device_bytes=device_bytes, dram_bytes=dram_bytes), 100, tier)
