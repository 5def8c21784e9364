"""What a read must show before its time counts. Pure."""

from enum import Enum

from benchmarks.benchmark import BenchmarkError
from kvstored_client import ReadReport


class Tier(Enum):
    """Where the bytes of a read come from."""

    DRAM = "DRAM"
    DEVICES = "the devices"


def require_tier(report: ReadReport, payload_bytes: int, tier: Tier) -> None:
    """Raises BenchmarkError unless every byte came from the tier that is measured."""
    wanted, other = report.device_bytes, report.dram_bytes
    if tier is Tier.DRAM:
        wanted, other = other, wanted
    if wanted < payload_bytes or other:
        raise BenchmarkError(
            f"{wanted} bytes came from {tier.value} and {other} from elsewhere, not all "
            f"{payload_bytes}: this would be another figure"
        )
