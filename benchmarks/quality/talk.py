"""A conversation by its name, as the runner takes it: states in the store, cuts by the engine."""

from collections.abc import Sequence

from engine_adapters.runner.conversation.continued import ConversationStore
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

GREEDY = Sampling()


class Talker:
    """Takes turns of conversations, each as a new process of the runner would. One thread only."""

    def __init__(
        self,
        client: Client,
        model: Model,
        state_format: StateFormat,
        *,
        window_tokens: int,
        sink_tokens: int = 0,
    ) -> None:
        """``sink_tokens`` stay at the front when a window of ``window_tokens`` overflows."""
        self._client = client
        self._model = model
        self._state_format = state_format
        self._window_tokens = window_tokens
        self._sink_tokens = sink_tokens

    def take_turn(
        self, name: str, prompt: Sequence[int], *, new_tokens: int, sampling: Sampling = GREEDY
    ) -> Completion:
        """The new turn of a conversation, with an answer; the store has it afterwards.

        Raises StepError where the model could not be computed, and ConversationError where the
        store cannot tell what was said, or keep it.
        """
        saver = StateSaver(self._client, self._state_format)
        store = ConversationStore(self._client, self._state_format, self._model, saver=saver)
        try:
            talk = store.open(name, sink_tokens=self._sink_tokens)
            engine = Engine(
                self._model, cache_tokens=self._window_tokens, requests_max=1, sink=saver
            )
            engine.add_request(
                prompt, new_tokens_max=new_tokens, sampling=sampling, conversation=talk
            )
            (completion,) = engine.run()
            if completion.error is not None:
                raise completion.error
            talk.end_turn(completion.token_ids, completion.cuts)
        finally:
            store.close()
            saver.close()
        return completion
