"""Makes a request of a prompt, or says why it can never run."""

from collections.abc import Sequence

from engine_adapters.runner.engine.conversing import Conversing, cuts_before
from engine_adapters.runner.engine.cut_track import CutTrack
from engine_adapters.runner.engine.linking import Linking, LinkTrack
from engine_adapters.runner.engine.request import Ending, Request, Times, TokenWatch
from engine_adapters.runner.engine.sampling import Sampler, Sampling
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.model_config import ModelConfig
from kvstored_contract.keys import Cut


def new_request(
    request_id: int,
    prompt: Sequence[int],
    config: ModelConfig,
    *,
    slot_count: int,
    new_tokens_max: int,
    sampling: Sampling | None,
    stop_token_ids: Sequence[int] | None,
    conversation: Conversing | None,
    link: Linking | None,
    watch: TokenWatch | None,
    now_s: float,
) -> Request:
    """A request for that model and a cache of so many slots; arguments as ``Engine.add_request``.

    Raises RequestError for what can never run.
    """
    _check_prompt(prompt, new_tokens_max, config)
    if conversation is not None and link is not None:
        raise RequestError("a linked prompt cannot continue a conversation")
    told: Sequence[int] = ()
    cuts: list[Cut] = []
    if conversation is None:
        _check_length(len(prompt), new_tokens_max, config, slot_count)
    else:
        told = conversation.told.token_ids
        cuts = cuts_before(conversation, len(prompt), config, slot_count=slot_count)
    token_count_max = len(told) + len(prompt) + new_tokens_max
    # What was cut, or will be, has had a whole window.
    window_tokens = min(config.position_count, slot_count)
    return Request(
        request_id=request_id,
        prompt_tokens=len(told) + len(prompt),
        token_ids=[*told, *prompt],
        sampler=Sampler(sampling or Sampling()),
        ending=Ending(
            frozenset(config.stop_token_ids if stop_token_ids is None else stop_token_ids),
            token_count_max,
            slot_count=window_tokens if cuts else min(token_count_max, window_tokens),
            watch=watch,
        ),
        times=Times(now_s),
        cuts=CutTrack(conversation, cuts),
        link=None if link is None else LinkTrack(link),
    )


def _check_length(
    prompt_tokens: int, new_tokens_max: int, config: ModelConfig, slot_count: int
) -> None:
    limits = (("the model's positions", config.position_count), ("the cache's tokens", slot_count))
    for name, limit in limits:
        if prompt_tokens + new_tokens_max > limit:
            raise RequestError(
                f"{prompt_tokens} prompt tokens and {new_tokens_max} new ones "
                f"exceed {name} ({limit})"
            )


def _check_prompt(prompt: Sequence[int], new_tokens_max: int, config: ModelConfig) -> None:
    if not prompt or new_tokens_max < 1:
        raise RequestError("a request needs at least one prompt token and one new token")
    if not all(0 <= token_id < config.vocab_size for token_id in prompt):
        raise RequestError(f"every token id must be 0 to {config.vocab_size - 1}")
