"""One prompt through a tiny model, with a store or without."""

from dataclasses import dataclass
from pathlib import Path

from engine_adapters.restore import ComputeCost, LoadCost
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import RAW, Client
from tests.support.waiting import PATIENCE_S

CHUNK_TOKENS = 16
PROMPT_CHUNKS = 24
NEW_TOKENS = 12
TOKEN_BUDGET = 128
SHAPE = RandomModelShape(
    vocab_size=320,
    hidden_size=64,
    intermediate_size=96,
    layer_count=4,
    head_count=4,
    kv_head_count=2,
    position_count=2048,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run generated, restored and saved."""

    generated_ids: tuple[int, ...]
    restore: RestoreReport
    save: SaveReport


class Laboratory:
    """A model and a prompt; every run is a fresh engine.

    With ``is_cake`` histories are restored from both ends, and computing is expected to be so
    slow that everything is loaded that can be, however long a busy machine stalls the store.
    ``codec`` names how states are stored.
    """

    def __init__(self, folder: Path, *, is_cake: bool = False, codec: str = RAW) -> None:
        self.is_cake = is_cake
        directory = folder / "model"
        write_random_model(directory, SHAPE, ["the quick brown fox " * 50])
        self.model = Model.from_directory(directory)
        states = StateFormat.of_directory(self.model, directory, chunk_tokens=CHUNK_TOKENS)
        self.format = states.encoded(codec)
        vocabulary = self.model.config.vocab_size
        self.prompt = [
            (7 * n * n + 3 * n) % vocabulary for n in range(CHUNK_TOKENS * PROMPT_CHUNKS)
        ]
        # A last, incomplete chunk: its tokens are always computed.
        self.prompt += [1, 2, 3]

    @property
    def chunk_bytes(self) -> int:
        """Arena bytes of one chunk."""
        return self.format.region_bytes(1)

    def keys(self, client: Client) -> list[bytes]:
        """Keys of the prompt's chunks."""
        return client.prefix_keys(self.format.layout, self.prompt)

    def restored_without(self, chunk: int) -> int:
        """Tokens that are restored when only this chunk is lost."""
        return (PROMPT_CHUNKS - 1 if self.is_cake else chunk) * CHUNK_TOKENS

    def _restorer(self, client: Client, span_bytes: int, timeout_s: float) -> Restorer:
        if not self.is_cake:
            return Restorer(
                client,
                self.format,
                self.model,
                RestoreOptions(span_bytes=span_bytes, timeout_s=timeout_s),
            )
        return Restorer(
            client,
            self.format,
            self.model,
            RestoreOptions(
                way=Way.BOTH_ENDS,
                compute=ComputeCost(step_s=1e4, token_s=1e3, attention_s=0.0),
                load=LoadCost(chunk_s=0.01),
                step_tokens=TOKEN_BUDGET,
                span_bytes=span_bytes,
                timeout_s=timeout_s,
                opening_s_max=PATIENCE_S,
            ),
        )

    def run(
        self, client: Client | None, *, span_chunks: int = 1000, timeout_s: float = PATIENCE_S
    ) -> Outcome:
        """Restores what the store has, computes the rest, generates, and saves."""
        saver = restorer = None
        if client is not None:
            saver = StateSaver(client, self.format)
            restorer = self._restorer(client, span_chunks * self.chunk_bytes, timeout_s)
        engine = Engine(
            self.model,
            cache_tokens=len(self.prompt) + NEW_TOKENS,
            token_budget=TOKEN_BUDGET,
            sink=saver,
            restorer=restorer,
        )
        engine.add_request(self.prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        (completion,) = engine.run()
        save = SaveReport()
        if saver is not None:
            save = saver.finish()
            saver.close()
        if restorer is not None:
            restorer.close()
        return Outcome(
            generated_ids=completion.generated_ids, restore=completion.restore, save=save
        )
