from pathlib import Path

import pytest

from engine_adapters.weights_identity import UnknownWeightsError, weights_identity


def test_hub_model_is_its_commit() -> None:
    assert weights_identity("someone/model", commit="abc") == "commit:abc"


def test_folder_is_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = weights_identity(str(tmp_path), commit=None)
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert weights_identity(str(tmp_path), commit=None) != before


@pytest.mark.parametrize(
    ("folder", "message"), [("", "no weight files"), ("gone", "no known commit")]
)
def test_unknown_weights_are_refused(tmp_path: Path, folder: str, message: str) -> None:
    with pytest.raises(UnknownWeightsError, match=message):
        weights_identity(str(tmp_path / folder), commit=None)
