"""The requests of others that come while a long history is restored (Cake, section 5.8). Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

REQUEST_COUNT = 22
TOKENS_MIN = 32
TOKENS_MAX = 448


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortRequest:
    """A prompt of which nothing is stored, and when it comes."""

    arrives_s: float
    token_count: int


def spiked_burst(generator: random.Random, spikes_s: Sequence[float]) -> tuple[ShortRequest, ...]:
    """As many requests as the paper has, of its lengths, in spikes at these times, in order.

    Lengths are uniform; the paper says no more than that the burst is spiked.
    """
    requests = [
        ShortRequest(
            arrives_s=spikes_s[number * len(spikes_s) // REQUEST_COUNT],
            token_count=generator.randint(TOKENS_MIN, TOKENS_MAX),
        )
        for number in range(REQUEST_COUNT)
    ]
    return tuple(sorted(requests, key=lambda request: request.arrives_s))
