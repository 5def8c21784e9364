from pathlib import Path
from typing import Any

import pytest

from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import StateFormat
from tests.engine_adapters.runner.checkpoints import write_llama
from tests.engine_adapters.runner.link.lab import CHUNK_TOKENS, POSITIONS, LinkLab
from tests.engine_adapters.runner.link.reference import DenseLlama


@pytest.fixture(scope="module")
def make_lab(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory: Path = tmp_path_factory.mktemp("model")
    theirs = write_llama(directory, num_key_value_heads=2, max_position_embeddings=POSITIONS)
    model = Model.from_directory(directory)

    def make(source: Source = Source.KV, *, codec: str = "raw") -> LinkLab:
        schedule = LayerSchedule.of((source, model.config.layer_count))
        states = StateFormat.of_model(
            model, "linked", schedule=schedule, chunk_tokens=CHUNK_TOKENS
        ).encoded(codec)
        return LinkLab(model, states, DenseLlama(theirs))

    return make
