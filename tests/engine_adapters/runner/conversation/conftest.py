from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from engine_adapters.restore import LayerSchedule, Preload, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.states.state_format import StateFormat
from tests.engine_adapters.runner.checkpoints import write_llama
from tests.engine_adapters.runner.conversation.lab import CHUNK_TOKENS, WINDOW, Lab
from tests.engine_adapters.runner.conversation.remembered import Memory, RememberedConversation


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    path = tmp_path_factory.mktemp("model")
    return path, write_llama(path, num_key_value_heads=2, max_position_embeddings=WINDOW)


@pytest.fixture(scope="module")
def memory() -> Memory:
    """What ``checkpoint`` said by hand so far."""
    return {}


@pytest.fixture
def make_lab(checkpoint: tuple[Path, LlamaForCausalLM], memory: Memory) -> Any:
    directory, theirs = checkpoint
    model = Model.from_directory(directory)

    def make(
        source: Source = Source.KV,
        *,
        sinks: int = 0,
        codec: str = "raw",
        preload: Preload = Preload.AUTO,
    ) -> Lab:
        schedule = LayerSchedule.of((source, model.config.layer_count))
        states = StateFormat.of_model(
            model, "talks", schedule=schedule, chunk_tokens=CHUNK_TOKENS
        ).encoded(codec)
        by_hand = RememberedConversation(theirs, window=WINDOW, sinks=sinks, memory=memory)
        return Lab(model, states, by_hand, sinks, options=RestoreOptions(preload=preload))

    return make
