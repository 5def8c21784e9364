import hashlib
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from engine_adapters import file_digests
from engine_adapters.file_digests import VARIABLE
from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.identity.request_identity import RequestIdentifier, UnknownIdentityError


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


def identity_of(asked: SimpleNamespace) -> RequestIdentity:
    return RequestIdentifier().identity_of(asked)


def adapter(folder: Path, weights: bytes, **changes: Any) -> SimpleNamespace:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(weights)
    plain = {"lora_name": "adapter", "lora_path": str(folder), "lora_int_id": 1}
    return SimpleNamespace(**(plain | changes))


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
        ({"mm_features": [image("")]}, "image has no hash of its content"),
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


def test_adapter_that_is_replaced_while_it_is_loaded_is_unknown(tmp_path: Path) -> None:
    """Bug: what the old weights gave was stored under the digest of those that lay there now."""
    identifier = RequestIdentifier()
    first = identifier.identity_of(request(lora_request=adapter(tmp_path / "a", b"weights")))
    lora = adapter(tmp_path / "a", b"others!")
    os.utime(tmp_path / "a" / "adapter_model.safetensors", ns=(1, 1))
    with pytest.raises(UnknownIdentityError, match="changed since it was used first"):
        identifier.identity_of(request(lora_request=lora))
    lora.lora_int_id = 2
    assert identifier.identity_of(request(lora_request=lora)) != first


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"load_inplace": True}, "load_inplace"),
        ({"tensorizer_config_dict": {"tensorizer_dir": "elsewhere"}}, "tensorizer"),
    ],
)
def test_adapter_that_comes_by_another_way_is_unknown(
    tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    lora = adapter(tmp_path / "a", b"weights", **change)
    with pytest.raises(UnknownIdentityError, match=f"loaded by {word}"):
        identity_of(request(lora_request=lora))


def test_adapter_is_used_as_the_engine_is_told_to(tmp_path: Path) -> None:
    """Bug: engines that apply other parts of the same adapter shared its states."""
    lora = adapter(tmp_path / "a", b"weights")
    plain = identity_of(request(lora_request=lora))
    some = RequestIdentifier(lora_config="target_modules=['q_proj']")
    assert some.identity_of(request(lora_request=lora)) != plain
    lora.is_3d_lora_weight = True
    assert identity_of(request(lora_request=lora)) != plain


def test_what_else_lies_beside_an_adapter_is_not_read(tmp_path: Path) -> None:
    lora = adapter(tmp_path / "a", b"weights")
    plain = identity_of(request(lora_request=lora))
    (tmp_path / "a" / "optimizer.pt").write_bytes(b"large")
    (tmp_path / "a" / "nested").mkdir()
    assert identity_of(request(lora_request=lora)) == plain
    (tmp_path / "a" / "adapter_config.json").write_text('{"lora_alpha": 2}')
    assert identity_of(request(lora_request=lora)) != plain


def test_images_without_content_hashes_are_unknown() -> None:
    """Bug: vLLM without caches counts images, and each of its processes starts over."""
    identifier = RequestIdentifier(hashes_media=False)
    assert identifier.identity_of(request()).media == ()
    with pytest.raises(UnknownIdentityError, match="no hash of its content"):
        identifier.identity_of(request(mm_features=[image("renderer0-mm-1-image-0")]))


def test_adapter_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """Bug: it raised into the scheduler."""
    lora = adapter(tmp_path / "a", b"weights")
    with (
        patch.object(Path, "stat", side_effect=PermissionError(13, "no")),
        pytest.raises(UnknownIdentityError, match="cannot be read"),
    ):
        identity_of(request(lora_request=lora))


def test_an_adapter_was_hashed_again_by_each_engine_in_the_schedulers_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: its files were read again, although they were the ones that had been hashed."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "memory"))
    lora = adapter(tmp_path / "a", b"weights")
    file = tmp_path / "a" / "adapter_model.safetensors"
    long_ago_ns = time.time_ns() - 3600 * 10**9
    os.utime(file, ns=(long_ago_ns, long_ago_ns))
    hashed = Mock(side_effect=hashlib.file_digest)
    monkeypatch.setattr(hashlib, "file_digest", hashed)
    # Else the time of its last change would be too young to be believed.
    monkeypatch.setattr(file_digests, "SETTLED_S", -3600)
    first = identity_of(request(lora_request=lora))
    assert hashed.call_count == 1
    lora.lora_int_id = 2
    assert identity_of(request(lora_request=lora)) == first
    assert hashed.call_count == 1
    replaced = tmp_path / "other"
    replaced.write_bytes(b"others!")
    os.utime(replaced, ns=(long_ago_ns, long_ago_ns))
    replaced.replace(file)
    assert identity_of(request(lora_request=lora)) != first
    assert hashed.call_count == 2


def test_an_adapter_whose_file_has_another_inode_is_unknown(tmp_path: Path) -> None:
    """Bug: a file of the same size and time in its place passed for it."""
    identifier = RequestIdentifier()
    lora = adapter(tmp_path / "a", b"weights")
    identifier.identity_of(request(lora_request=lora))
    file = tmp_path / "a" / "adapter_model.safetensors"
    state = file.stat()
    (tmp_path / "other").write_bytes(b"others!")
    (tmp_path / "other").replace(file)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(UnknownIdentityError, match="changed since it was used first"):
        identifier.identity_of(request(lora_request=lora))
