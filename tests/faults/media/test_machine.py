"""A Hypothesis state machine drives the store against a plain dictionary model.

Fails when the committer does not flush (seen: chunks that were acknowledged are not there
behind a crash, and "the check names {...}"), when ``ReadStream._verify`` takes every slice
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
from tests.faults.seeds import seed

QUICK_EXAMPLES, QUICK_STEPS = 25, 40
LONG_EXAMPLES, LONG_STEPS = 300, 100


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


MACHINES = pytest.mark.parametrize(
    "machine", [StoreMachine, GrowingMachine], ids=["chunks", "sequences"]
)


@MACHINES
def test_store_against_a_dictionary(machine: type[StoreMachine]) -> None:
    drive(machine, QUICK_EXAMPLES, QUICK_STEPS)


@MACHINES
@pytest.mark.long
def test_store_against_a_dictionary_for_long(machine: type[StoreMachine]) -> None:
    drive(machine, LONG_EXAMPLES, LONG_STEPS)
