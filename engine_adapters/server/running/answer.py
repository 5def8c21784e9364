"""The text of an answer: made on the engine's thread, read on the event loop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from engine_adapters.server.protocol.detokenizer import Detokenizer
from engine_adapters.server.protocol.stop_scanner import StopScanner
from engine_adapters.server.running.job import Outcome

LOGGER = logging.getLogger(__name__)
AT_STOP = "stop"
AT_LENGTH = "length"


class Answer:
    """As ``Listener``. Texts cross to the event loop without either side waiting.

    ``ended`` has what the engine ended with, once it holds nothing of the request any more.
    ``reason`` is AT_STOP for a stop string or a stop token, else AT_LENGTH.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        *,
        stops: Sequence[str] = (),
        stop_token_ids: Collection[int] = (),
    ) -> None:
        """Made on the event loop."""
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Outcome] = self._loop.create_future()
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._detokenizer = Detokenizer(decode)
        self._scanner = StopScanner(stops)
        self._stop_token_ids = stop_token_ids
        self._failure: Exception | None = None
        self.reason = AT_LENGTH

    async def texts(self) -> AsyncIterator[str]:
        """The pieces of the text until the answer has ended, however that is."""
        while (piece := await self._pieces.get()) is not None:
            yield piece

    def take(self, token_id: int) -> bool:
        """As ``Listener``."""
        if token_id in self._stop_token_ids:
            self.reason = AT_STOP
            return True
        try:
            return self._give(self._detokenizer.push(token_id))
        # It must not raise into the engine, and the client shall hear of it.
        except Exception as error:
            LOGGER.exception("an answer could not be decoded")
            self._failure = error
            return True

    def end(self, outcome: Outcome) -> None:
        """As ``Listener``."""
        if outcome is not None and not isinstance(outcome, Exception):
            outcome = self._failure or outcome
        if self._failure is None:
            self._give(self._detokenizer.flush())
            rest = self._scanner.flush()
            if rest:
                self._post(rest)
        self._loop.call_soon_threadsafe(self._finish, outcome)

    def _give(self, text: str) -> bool:
        certain = self._scanner.push(text) if text else ""
        if certain:
            self._post(certain)
        if self._scanner.is_stopped:
            self.reason = AT_STOP
        return self._scanner.is_stopped

    def _post(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, text)

    def _finish(self, outcome: Outcome) -> None:
        self.ended.set_result(outcome)
        self._pieces.put_nowait(None)
