"""What one request may ask for. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of each request; a running request also needs room in the cache.

    ``waiting_max`` requests may wait beside those that run.
    """

    body_bytes: int = 4 * 1024**2
    prompt_tokens: int = 32_768
    new_tokens: int = 4_096
    stops: int = 4
    stop_characters: int = 256
    waiting_max: int = 256

    def __post_init__(self) -> None:
        if min(self.body_bytes, self.prompt_tokens, self.new_tokens) < 1 or self.waiting_max < 0:
            raise ValueError("limits of bodies, prompts and new tokens are 1 or more")
