"""Bit flips in everything on media: each is seen, and none raises what ends a thread.

Fails at the first flip of its kind when a checksum is not compared (seen, with the
comparison taken out, for ``ExtentHeader``, ``SlabHeader``, ``Superblock``, ``ChunkRecord``
and ``claim_stream``), when that of ``ChunkRecord`` does not cover the key (seen), and when
``check_store`` leaves the slab headers out (seen: "the check finds ()").
"""

from tests.faults.media.flips import PERCENT, flip_bits
from tests.faults.media.flips_target import Verdict
from tests.support import labs
from tests.support.seeds import seed


@labs.FLIPS.sizes("count")
def test_every_flip_is_detected(count: int) -> None:
    report = flip_bits(count, seed())
    assert report.flip_count >= count
    assert len(report.counts) == len(PERCENT)
    assert all(counts[Verdict.DETECTED] for counts in report.counts.values())
