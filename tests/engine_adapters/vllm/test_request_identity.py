import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from engine_adapters.vllm.request_identity import UnknownIdentityError, identity_of


def request(**changes: Any) -> SimpleNamespace:
    plain: dict[str, Any] = {
        "prompt_token_ids": [1, 2],
        "prompt_embeds": None,
        "resumable": False,
        "lora_request": None,
        "cache_salt": None,
        "mm_features": [],
    }
    return SimpleNamespace(**(plain | changes))


def image(identifier: str) -> SimpleNamespace:
    place = SimpleNamespace(offset=3, length=5)
    return SimpleNamespace(identifier=identifier, modality="image", mm_position=place)


def adapter(folder: Path, weights: bytes) -> SimpleNamespace:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return SimpleNamespace(lora_name="adapter", lora_path=str(folder))


def test_plain_request() -> None:
    identity = identity_of(request())
    assert (identity.adapter, identity.salt, identity.media) == (b"", "", ())


def test_salt_and_media_are_taken() -> None:
    identity = identity_of(request(cache_salt="mine", mm_features=[image("cat")]))
    assert identity.salt == "mine"
    assert identity.media[0].content == b"cat"
    assert (identity.media[0].first_token, identity.media[0].token_count) == (3, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_token_ids": None}, "embeddings"),
        ({"prompt_embeds": object()}, "embeddings"),
        ({"resumable": True}, "streamed"),
        ({"mm_features": [image("")]}, "image has no hash"),
        (
            {"lora_request": SimpleNamespace(lora_name="far", lora_path="hub/far")},
            "far is no local folder",
        ),
    ],
)
def test_what_is_unknown_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownIdentityError, match=message):
        identity_of(request(**change))


def test_adapter_is_its_weights(tmp_path: Path) -> None:
    """vLLM compares adapters by name; ours must see other weights under the same name."""
    one = identity_of(request(lora_request=adapter(tmp_path / "a", b"weights")))
    same = identity_of(request(lora_request=adapter(tmp_path / "b", b"weights")))
    other = identity_of(request(lora_request=adapter(tmp_path / "c", b"others!")))
    assert one == same
    assert one != other


def test_adapter_that_is_replaced_is_another(tmp_path: Path) -> None:
    before = identity_of(request(lora_request=adapter(tmp_path / "a", b"weights")))
    lora = adapter(tmp_path / "a", b"others!")
    os.utime(tmp_path / "a" / "adapter_model.safetensors", ns=(1, 1))
    (tmp_path / "a" / "nested").mkdir()
    assert identity_of(request(lora_request=lora)) != before


def test_adapter_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """Bug: it raised into the scheduler."""
    lora = adapter(tmp_path / "a", b"weights")
    with (
        patch.object(Path, "stat", side_effect=PermissionError(13, "no")),
        pytest.raises(UnknownIdentityError, match="cannot be read"),
    ):
        identity_of(request(lora_request=lora))
