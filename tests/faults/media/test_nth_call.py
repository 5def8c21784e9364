"""Whichever call of a device fails, once or for ever: misses, never wrong bytes or a leak.

Fails when ``Committer._flush`` does not report a device whose flush failed, and when the
flush is left out (seen: "acknowledged and not there"), when ``ChunkWrites._end`` keeps
the extent of a write that failed (seen: "extents of device 0 leak"), when ``ReadPath`` keeps
its pins (seen: "the store does not come to rest"), and when ``Landings.failed`` settles
nothing (seen: "a read outlives its deadline"). A start fails when ``read_superblock`` needs
both copies (seen: it was refused for one read), and when ``scan_slab`` gives up with the first
error (seen: "acknowledged and not there").

Appends fail when ``TailFrames`` takes a tail that its device does not give, or that lies on a
failed one, for one that is not stored (seen: NOT_STORED) and when it keeps the frame that it could
not fill (seen: open bytes), when ``Sequences._flush_tail`` does not look at the outcome, and when
``settle`` does not (seen: a chunk is named that is not there) or keeps the frame of a sequence
that has ended (seen: WrongBytesError).
"""

import pytest

from tests.faults.media.lab import Start
from tests.faults.media.nth_call import (
    OPERATIONS,
    count_up,
    run_operation,
    run_recovery,
    stopped_store,
)
from tests.support import labs
from tests.support.seeds import seed

STEPS = labs.NTH_CALLS.sizes("step")
"""One of so many calls is looked at, and chance says which one."""
CALLS_MIN = {"put": 12, "read": 30, "evict": 10, "append": 16}
CALLS_OF_A_START_MIN = 12
"""Fewer calls would mean that the lab does not see them."""


def first_of(step: int, calls_min: int) -> int:
    """Not beyond the calls that there are: at least one fails."""
    return 1 + seed() % min(step, calls_min)


@STEPS
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_nth_call_fails(operation: str, for_ever: bool, step: int) -> None:
    calls_min = CALLS_MIN[operation]
    first = first_of(step, calls_min)
    met = count_up(
        lambda nth: run_operation(operation, nth, for_ever=for_ever), first=first, step=step
    )
    assert met >= max(first, calls_min - step + 1)


@STEPS
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("start", Start, ids=lambda start: start.value)
def test_the_nth_call_of_a_start_fails(start: Start, for_ever: bool, step: int) -> None:
    first = first_of(step, CALLS_OF_A_START_MIN)
    with stopped_store() as lab:
        met = count_up(
            lambda nth: run_recovery(lab, start, nth, for_ever=for_ever), first=first, step=step
        )
    assert met >= max(first, CALLS_OF_A_START_MIN - step + 1)
