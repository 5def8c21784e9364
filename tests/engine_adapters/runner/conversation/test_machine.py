"""Conversations over turns, cuts, forks, evictions and kills, against a plain model of them.

Every state is a digest of all that it was computed from, so that whatever is loaded in a wrong
place, or under a wrong key, is another one.
"""

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine_adapters.runner.conversation.machine import ConversationMachine
from tests.support import labs
from tests.support.scale import Scale
from tests.support.seeds import seed

MET = {
    "fresh prompts that miss",
    "kills after it",
    "kills before the end of a turn",
    "whole windows of cut conversations",
    "windows that were lost before a cut",
}
"""What the walks of a run come by."""


@labs.TALK_WALKS.scales("scale")
def test_conversations_against_a_plain_model(scale: Scale) -> None:
    ConversationMachine.met.clear()
    run_state_machine_as_test(
        hypothesis.seed(seed())(ConversationMachine),
        settings=settings(
            max_examples=labs.TALK_WALKS.size(scale),
            stateful_step_count=labs.TALK_WALK_STEPS.size(scale),
            phases=(Phase.generate,),
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert {what for what, count in ConversationMachine.met.items() if count} == MET
