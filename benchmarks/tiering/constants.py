"""What the paper does not state: three numbers, the same for all models and settings."""

THINK_S = 200.0
"""Mean time from a reply to the user's next turn.

In Mooncake's conversation trace a request that goes on where an earlier one was comes 215 s after
that one on average (median 123 s), which has the time of its reply in it.
"""
SERVICE_TURNS_PER_S = 2.46
"""Turns that the server ends in a second while others wait.

Chosen so that LRU finds 58 % at 128 GB and 10 TB, the paper's figure 21: the only number of
its results that anything here is fitted to.
"""
ROOM_SHARE = 1.0
"""Part of a context window for which a stored conversation takes room.

Whole windows, as the paper itself counts capacity (CCpS, section 4.3.5). With room for the tokens
alone all 9000 conversations are 13 TB at their ends, and at 10 TB LRU loses none that returns,
whatever the rate: its 58 % cannot come about.
"""
