"""A Hypothesis state machine drives the store against a plain dictionary model.

Fails when the committer does not flush (seen: chunks that were acknowledged are not there
behind a crash, and "the check names {...}"), when ``ReadStream._verify`` takes every slice
for sound (seen: WrongBytesError), and when ``NvmeRoom`` evicts what is pinned (seen: "of
{...} some are pinned").
"""

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.media.machine import StoreMachine
from tests.faults.seeds import seed

QUICK_EXAMPLES, QUICK_STEPS = 40, 40
LONG_EXAMPLES, LONG_STEPS = 300, 100


def drive(examples: int, steps: int) -> None:
    """A failure prints its steps; the seed repeats the run. Threads make shrinking useless."""
    run_state_machine_as_test(
        hypothesis.seed(seed())(StoreMachine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            phases=(Phase.generate,),
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_store_against_a_dictionary() -> None:
    drive(QUICK_EXAMPLES, QUICK_STEPS)


@pytest.mark.long
def test_store_against_a_dictionary_for_long() -> None:
    drive(LONG_EXAMPLES, LONG_STEPS)
