"""The scheduler's side of an engine, with a look-up that a test plays."""

from typing import Any
from unittest.mock import Mock

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.scheduler_side.load_choice import LoadChoice
from engine_adapters.vllm.scheduler_side.side import SchedulerSide
from engine_adapters.vllm.settings.mode_choice import ModeChoice
from engine_adapters.vllm.settings.options import AdapterOptions, RestoreMode

CHUNK_TOKENS, BLOCK_TOKENS = 64, 16


def scheduler_side(
    lookup: Any,
    mode: RestoreMode,
    *,
    step_tokens: int,
    saves: bool = True,
    worker_count: int = 1,
    hints: Any = None,
    stores_hidden: bool = False,
) -> SchedulerSide:
    """All requests have the same identity."""
    return SchedulerSide(
        AdapterOptions(saves=saves),
        fingerprint="m",
        identifier=Mock(identity_of=lambda _request: RequestIdentity()),
        lookup=lookup,
        choice=LoadChoice(
            mode=mode,
            planner=ModeChoice(
                profile=None,
                layer_count=2,
                chunk_tokens=CHUNK_TOKENS,
                step_tokens=step_tokens,
                stores_hidden=stores_hidden,
            ),
            block_tokens=BLOCK_TOKENS,
        ),
        worker_count=worker_count,
        hints=hints,
    )
