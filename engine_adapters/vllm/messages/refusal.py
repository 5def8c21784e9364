"""What a user should know of a daemon that refuses an engine its session, and can do."""

import logging
from collections.abc import Callable, Mapping

from engine_adapters.vllm.settings.options import AdapterOptions
from kvstored_client import Reason, SessionRefusedError

LOGGER = logging.getLogger("vllm.kvstored")


def teller_of(part: str, options: AdapterOptions) -> Callable[[SessionRefusedError], None]:
    """``refusal_teller`` of the connector."""
    return refusal_teller(
        part,
        arena=f"arena_bytes of kv_connector_extra_config, {options.arena_bytes} for each worker",
        socket="socket of kv_connector_extra_config",
    )


def refusal_teller(part: str, *, arena: str, socket: str) -> Callable[[SessionRefusedError], None]:
    """What a client calls with each new refusal: logs one sentence.

    ``part`` is what is off ("this worker"), ``arena`` and ``socket`` are the options that say how
    much it asks for and of whom.
    """

    def tell(refusal: SessionRefusedError) -> None:
        LOGGER.warning(
            "%s", sentence_of(str(refusal), refusal.reason, part=part, arena=arena, socket=socket)
        )

    return tell


class WorkerRefusals:
    """Which workers the daemon refuses, as the scheduler's process knows.

    ``hear`` belongs to one thread; ``are_any`` may be asked by any.
    """

    def __init__(self) -> None:
        self._by_rank: dict[int, str] = {}
        self._told: set[str] = set()
        self.are_any = False
        """Whether what is stored could not be loaded by all workers."""

    def hear(self, refusals: Mapping[int, str]) -> None:
        """Takes what workers report; tells each of the daemon's sentences once."""
        self._by_rank |= refusals
        self.are_any = any(self._by_rank.values())
        for rank, refusal in refusals.items():
            if refusal and refusal not in self._told:
                self._told.add(refusal)
                LOGGER.warning(
                    "kvstored looks nothing up until the daemon grants the worker of rank %d a "
                    "session: %s",
                    rank,
                    refusal,
                )


def sentence_of(refusal: str, reason: Reason, *, part: str, arena: str, socket: str) -> str:
    """The daemon's own sentence with what is off and, where there is one, the option to change."""
    sentence = f"kvstored is off in {part} until the daemon grants it a session: {refusal}"
    match reason:
        case Reason.LIMIT_EXCEEDED:
            return f"{sentence} (the engine's option is {arena})"
        case Reason.ACCESS_REFUSED:
            return f"{sentence} (or name another daemon in {socket})"
        case _:
            return sentence
