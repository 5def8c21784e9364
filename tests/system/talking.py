"""An engine process that takes turns of one conversation: ``python -m tests.system.talking``.

Reads a turn from each line of its input, and writes what the conversation had before it, then the
answer once that is durable. A turn without a prompt only asks what there is.
"""

import json
import sys
from pathlib import Path

from engine_adapters.runner.conversation.continued import ConversationStore
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

NAME = "a talk"
CHUNK_TOKENS = 16
WINDOW = 128


def main(socket: str, directory: str) -> None:
    """Until the input ends."""
    model = Model.from_directory(Path(directory))
    states = StateFormat.of_model(model, "talking", chunk_tokens=CHUNK_TOKENS)
    with Client(socket, arena_bytes="16MiB") as client:
        saver = StateSaver(client, states)
        talks = ConversationStore(client, states, model, saver=saver)
        tell({"ready": True})
        for line in sys.stdin:
            turn = json.loads(line)
            talk = talks.open(NAME)
            tell({"told": len(talk.token_ids)})
            if not turn["prompt"]:
                continue
            engine = Engine(model, cache_tokens=WINDOW, token_budget=32, requests_max=1, sink=saver)
            engine.add_request(turn["prompt"], new_tokens_max=turn["new_tokens"], conversation=talk)
            (completion,) = engine.run()
            assert completion.error is None, completion.error
            talk.end_turn(completion.token_ids, completion.cuts)
            tell(
                {
                    "answer": completion.generated_ids,
                    "restored": completion.restore.restored_tokens,
                    "computed": completion.computed_tokens,
                }
            )


def tell(message: dict[str, object]) -> None:
    """One line of the output."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
