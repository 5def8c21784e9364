"""One prompt on its way through the engine, and what is left of it."""

import asyncio
import secrets
from functools import partial

from engine_adapters.runner.engine.conversing import Conversing
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.server.http.prompts import Prompt
from engine_adapters.server.http.service import Service
from engine_adapters.server.protocol.generation import Generation
from engine_adapters.server.protocol.replies import Usage
from engine_adapters.server.running.answer import Answer
from engine_adapters.server.running.job import Job
from engine_adapters.server.running.namespace import Namespace

SEED_BITS = 63


class Turn:
    """Begins at once. Its place among the requests is free when nothing holds anything of it.

    That is after the engine's last step with it, and after its turn is durable where it continues
    a conversation. A turn that the engine has finished happens whether or not its client is there.
    The event loop only.
    """

    def __init__(
        self, service: Service, namespace: Namespace, prompt: Prompt, generation: Generation
    ) -> None:
        model = service.model
        self._service = service
        self._namespace = namespace
        self._prompt = prompt
        self._talk_name = generation.conversation
        stop_token_ids = model.config.stop_token_ids
        self._answer = Answer(
            model.tokenizer.decode, stops=generation.stops, stop_token_ids=stop_token_ids
        )
        seed = secrets.randbits(SEED_BITS) if generation.seed is None else generation.seed
        self._job = Job(
            prompt=prompt.token_ids,
            new_tokens_max=prompt.new_tokens_max,
            listener=self._answer,
            sampling=Sampling(
                temperature=generation.temperature, top_p=generation.top_p, seed=seed
            ),
            saver=None if prompt.link is not None else namespace.saver,
            conversation=self._conversing(),
            link=prompt.link,
        )
        self.texts = self._answer.texts()
        """The pieces of the answer; there is nothing more when it is aborted."""
        service.engine.submit(self._job)
        self._end = service.spawn(self._finish())

    @property
    def reason(self) -> str:
        """Why the answer ended."""
        return self._answer.reason

    async def usage(self) -> Usage:
        """Waits for the end of the turn; raises what kept it from happening."""
        completion = await asyncio.shield(self._end)
        return Usage(
            prompt_tokens=completion.prompt_tokens,
            new_tokens=len(completion.generated_ids),
            restored_tokens=completion.restore.restored_tokens,
        )

    def abort(self) -> None:
        """Nobody wants the answer any more; nothing happens where it is complete."""
        self._service.engine.abort(self._job)

    def _conversing(self) -> Conversing | None:
        prompt = self._prompt
        if prompt.link is not None:
            return None
        return prompt.conversation or self._namespace.prompt(prompt.token_ids)

    async def _finish(self) -> Completion:
        """The end of the answer, and of the turn of a conversation."""
        talk = self._prompt.conversation
        try:
            outcome = await self._answer.ended
            if outcome is None or isinstance(outcome, Exception):
                if talk is not None:
                    await self._service.in_thread(talk.abandon)
                raise AbortedError() if outcome is None else outcome
            if talk is not None:
                await self._service.in_thread(
                    partial(talk.end_turn, outcome.token_ids, outcome.cuts)
                )
            self._service.metrics.count(outcome)
            return outcome
        finally:
            if self._talk_name is not None:
                self._namespace.talking.discard(self._talk_name)
            self._service.admission.leave()


class AbortedError(Exception):
    """The server aborted a turn that somebody still waited for, because it stops."""
