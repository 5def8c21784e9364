"""100,000 bit flips in everything on media: each is seen, and none raises what ends a thread.

Fails at the first flip of its kind when a checksum is not compared (seen, with the
comparison taken out, for ``ExtentHeader``, ``SlabHeader``, ``Superblock``, ``ChunkRecord``
and ``claim_stream``), when that of ``ChunkRecord`` does not cover the key (seen), and when
``check_store`` leaves the slab headers out (seen: "the check finds ()").
"""

import pytest

from tests.faults.media.flips import PERCENT, flip_bits
from tests.faults.media.flips_target import Verdict
from tests.faults.seeds import seed

QUICK = 100_000
LONG = 500_000


def test_every_flip_is_detected() -> None:
    report = flip_bits(QUICK, seed())
    assert report.flip_count >= QUICK
    assert len(report.counts) == len(PERCENT)
    assert all(counts[Verdict.DETECTED] for counts in report.counts.values())


@pytest.mark.long
def test_every_one_of_many_flips_is_detected() -> None:
    assert flip_bits(LONG, seed()).flip_count >= LONG
