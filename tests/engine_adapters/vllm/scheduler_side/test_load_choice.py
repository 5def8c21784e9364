import pytest

from engine_adapters.vllm.scheduler_side.load_choice import LoadChoice
from engine_adapters.vllm.settings.mode_choice import ModeChoice
from engine_adapters.vllm.settings.options import RestoreMode

CHUNK_TOKENS, BLOCK_TOKENS, STEP_TOKENS = 64, 16, 128


def choice(mode: RestoreMode = RestoreMode.PREFIX, *, least_load_tokens: int = 1) -> LoadChoice:
    return LoadChoice(
        mode=mode,
        planner=ModeChoice(
            profile=None, layer_count=2, chunk_tokens=CHUNK_TOKENS, step_tokens=STEP_TOKENS
        ),
        block_tokens=BLOCK_TOKENS,
        least_load_tokens=least_load_tokens,
    )


def test_the_last_token_is_always_computed() -> None:
    assert choice().usable_tokens(stored_chunks=2, request_tokens=128) == 112
    assert choice().usable_tokens(stored_chunks=2, request_tokens=129) == 128


@pytest.mark.parametrize(("least", "mode"), [(64, RestoreMode.PREFIX), (65, RestoreMode.OFF)])
def test_few_tokens_are_computed_rather_than_loaded(least: int, mode: RestoreMode) -> None:
    found = choice(least_load_tokens=least).mode_of(
        stored_chunks=2, request_tokens=1000, computed_tokens=64
    )
    assert found is mode


@pytest.mark.parametrize(
    ("request_tokens", "mode"), [(128, RestoreMode.PREFIX), (129, RestoreMode.CAKE)]
)
def test_the_planner_decides_where_the_user_left_it_to_it(
    request_tokens: int, mode: RestoreMode
) -> None:
    found = choice(RestoreMode.AUTO).mode_of(
        stored_chunks=2, request_tokens=request_tokens, computed_tokens=0
    )
    assert found is mode


def test_a_span_has_the_blocks_between_two_tokens() -> None:
    span = choice().span(range(100, 120), first_token=32, usable_tokens=112)
    assert (span.first_block, span.block_ids) == (2, (102, 103, 104, 105, 106))
    assert list(span.chunks) == [0, 1]
