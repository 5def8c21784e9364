"""An engine process that takes turns of conversations, several in one batch.

A template forks it (``TALKER``). It connects to the socket ``voice`` and answers each line that it
hears there with one line.
"""

import json
import socket
from pathlib import Path
from typing import Any

from engine_adapters.conversation.conversations import Conversations
from engine_adapters.conversation.errors import ConversationError
from engine_adapters.runner.conversation.continued import ContinuedConversation, ConversationStore
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client
from tests.support.waiting import PATIENCE_S

TALKER = "tests.system.talking:run_talker"
"""The job that a template forks."""
MODEL = "talking"
CHUNK_TOKENS = 4
WINDOW = 64
BATCH = 4
"""Turns at once at most."""
TOKEN_BUDGET = 32
ARENA_BYTES = "8MiB"

Message = dict[str, Any]


def run_talker(arguments: Message) -> None:
    """Until the other side of ``voice`` hangs up."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as voice,
        Client(
            arguments["socket"], arena_bytes=ARENA_BYTES, name="talker", reconnect_interval_s=0
        ) as client,
    ):
        voice.connect(arguments["voice"])
        talker = Talker(client, Path(arguments["directory"]))
        with voice.makefile("rw") as lines:
            for line in iter(lines.readline, ""):
                lines.write(json.dumps(talker.answer(json.loads(line))) + "\n")
                lines.flush()


class Talker:
    """The engine. What cannot be done of a conversation is answered with an ``error``."""

    def __init__(self, client: Client, directory: Path) -> None:
        self._model = Model.from_directory(directory)
        states = StateFormat.of_model(self._model, MODEL, chunk_tokens=CHUNK_TOKENS)
        self._saver = StateSaver(client, states)
        self._talks = ConversationStore(client, states, self._model, saver=self._saver)

    @property
    def conversations(self) -> Conversations:
        """By their names."""
        return self._talks.conversations

    def answer(self, question: Message) -> Message:
        """By the name of each conversation that is asked for."""
        if "fork" in question:
            name, new_name = question["fork"]
            try:
                self.conversations.fork(name, new_name)
            except ConversationError as error:
                return {new_name: {"error": str(error)}}
            return self.told([new_name])
        if "told" in question:
            return self.told(question["told"])
        return self.turns(question["turns"])

    def told(self, names: list[str]) -> Message:
        """All tokens, and how many cuts."""
        found: Message = {}
        for name in names:
            try:
                conversation = self.conversations.open(name)
            except ConversationError as error:
                found[name] = {"error": str(error)}
            else:
                found[name] = {
                    "token_ids": conversation.token_ids,
                    "cuts": len(conversation.cuts),
                }
        return found

    def turns(self, turns: list[Message]) -> Message:
        """Cuts what is to be cut first, then takes all turns in one batch."""
        engine = Engine(
            self._model,
            cache_tokens=BATCH * WINDOW,
            token_budget=TOKEN_BUDGET,
            requests_max=BATCH,
            sink=self._saver,
        )
        answers: Message = {}
        begun: dict[int, ContinuedConversation] = {}
        for turn in turns:
            try:
                talk = self._opened(turn)
            except ConversationError as error:
                answers[turn["name"]] = {"error": str(error)}
            else:
                number = engine.add_request(
                    turn["prompt"], new_tokens_max=turn["new_tokens"], conversation=talk
                )
                begun[number] = talk
        for completion in engine.run() if begun else ():
            talk = begun[completion.request_id]
            answers[talk.conversation.name] = self._ended(talk, completion)
        return answers

    def _opened(self, turn: Message) -> ContinuedConversation:
        if turn["kept"] is not None:
            conversation = self.conversations.open(turn["name"])
            self.conversations.truncate(conversation, [range(*bounds) for bounds in turn["kept"]])
        return self._talks.open(turn["name"])

    def _ended(self, talk: ContinuedConversation, completion: Completion) -> Message:
        if completion.error is not None:
            raise completion.error
        try:
            talk.end_turn(completion.token_ids, completion.cuts)
        except ConversationError as error:
            return {"error": str(error)}
        return {
            "answer": completion.generated_ids,
            "cuts": len(talk.told.cuts) + len(completion.cuts),
            "restored": completion.restore.restored_tokens,
            "computed": completion.computed_tokens,
        }


class Voice:
    """The driver's side: a socket in ``folder`` that talkers connect to, one after another."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "voice"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._listener.settimeout(PATIENCE_S)
        self._connection: socket.socket | None = None

    def meet(self) -> None:
        """Waits for the next talker; the last one must be gone."""
        self._hang_up()
        self._connection, _ = self._listener.accept()
        self._lines = self._connection.makefile("rw")

    def say(self, question: Message) -> None:
        """Asks; a talker that is gone does not hear it."""
        self._lines.write(json.dumps(question) + "\n")
        self._lines.flush()

    def hear(self) -> Message | None:
        """The answer; None of a talker that is gone."""
        try:
            line = self._lines.readline()
        except ConnectionResetError:
            line = ""
        return json.loads(line) if line else None

    def close(self) -> None:
        """Hangs up and listens no more."""
        self._hang_up()
        self._listener.close()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._lines.close()
            self._connection.close()
            self._connection = None
