"""A Hypothesis state machine drives the store against a plain dictionary model.

Fails when the committer does not flush (seen: chunks that were acknowledged are not there
after a crash, and "the check names {...}"), when ``Landings._verify`` takes every slice
for sound (seen: WrongBytesError), and when ``NvmeRoom`` evicts what is pinned (seen: "of
{...} some are pinned").

With sequences it fails when ``SequenceState.advanced`` does not look at what is pending and when
``settle`` does not look at the outcome (seen: "chunks {...} are lost"), when
``Sequences._flush_tail`` does not wait for the short chunk, when ``OpenSequences.end_session``
keeps the frames (seen: open bytes), and when ``TailFrames`` takes a tail on a failed device for
one that is not stored (seen: "{...}: NOT_STORED") or does not verify the tail (seen:
WrongBytesError).
"""

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.media.growing_machine import GrowingMachine
from tests.faults.media.machine import StoreMachine
from tests.support import labs
from tests.support.scale import Scale
from tests.support.seeds import seed


def drive(machine: type[StoreMachine], examples: int, steps: int) -> None:
    """A failure prints its steps; the seed repeats the run. Threads make shrinking useless."""
    run_state_machine_as_test(
        hypothesis.seed(seed())(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            phases=(Phase.generate,),
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@labs.STORE_WALKS.scales("scale")
@pytest.mark.parametrize("machine", [StoreMachine, GrowingMachine], ids=["chunks", "sequences"])
def test_store_against_a_dictionary(machine: type[StoreMachine], scale: Scale) -> None:
    drive(machine, labs.STORE_WALKS.size(scale), labs.STORE_WALK_STEPS.size(scale))
