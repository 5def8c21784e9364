"""What of a vLLM request changes its states. Pure but for reading LoRA weights."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engine_adapters.file_digests import file_digests
from engine_adapters.vllm.identity.chunk_keys import Medium, RequestIdentity

ADAPTER_FILES = ("adapter_config.json", "adapter_model.*", "new_embeddings.*")
"""Of an adapter's folder, which may hold a whole training run, what vLLM reads."""

_Versions = tuple[tuple[Path, int, int, int], ...]
"""Files with their sizes, times of change and inodes: one that is replaced has another."""


class UnknownIdentityError(ValueError):
    """A request whose states depend on something unknown; the message names it."""


class RequestIdentifier:
    """Tells the identities of one engine's requests. Not thread-safe.

    ``lora_config`` is whatever of the engine's configuration changes what an adapter does.
    ``hashes_media``: the engine names images and the like by their content, not by a counter.
    """

    def __init__(self, *, lora_config: str = "", hashes_media: bool = True) -> None:
        self._lora_config = lora_config
        self._hashes_media = hashes_media
        self._adapters: dict[int, tuple[_Versions, bytes]] = {}

    def identity_of(self, request: Any) -> RequestIdentity:
        """The identity of an engine's request; raises UnknownIdentityError."""
        if request.prompt_token_ids is None or getattr(request, "prompt_embeds", None) is not None:
            raise UnknownIdentityError("its prompt has embeddings instead of tokens")
        if getattr(request, "resumable", False):
            raise UnknownIdentityError("its prompt is still being streamed in")
        return RequestIdentity(
            adapter=self._adapter(request.lora_request),
            salt=request.cache_salt or "",
            media=tuple(self._media(request.mm_features)),
        )

    def _adapter(self, lora: Any) -> bytes:
        if lora is None:
            return b""
        try:
            weights = self._weights(lora)
        except OSError as error:
            raise UnknownIdentityError(
                f"the weights of LoRA adapter {lora.lora_name} cannot be read: {error}"
            ) from error
        kind = f"{getattr(lora, 'is_3d_lora_weight', False)} {self._lora_config}"
        return hashlib.sha256(weights + kind.encode()).digest()

    def _weights(self, lora: Any) -> bytes:
        """A digest of what lies where the engine loads the adapter from.

        The engine loads it once for each ``lora_int_id``: what lies there when it has changed is
        not what runs, unless it is loaded in place of another, with the same number. Files that
        ``file_digests`` remembers are not read again, also by the next engine.
        """
        if getattr(lora, "load_inplace", False):
            raise UnknownIdentityError(f"LoRA adapter {lora.lora_name} is loaded by load_inplace")
        if getattr(lora, "tensorizer_config_dict", None):
            raise UnknownIdentityError(f"LoRA adapter {lora.lora_name} is loaded by tensorizer")
        folder = Path(lora.lora_path)
        if not folder.is_dir():
            raise UnknownIdentityError(
                f"the LoRA adapter {lora.lora_name} is no local folder, so its weights are unknown"
            )
        files = sorted({path for pattern in ADAPTER_FILES for path in folder.glob(pattern)})
        versions = _versions(files)
        if lora.lora_int_id not in self._adapters:
            self._adapters[lora.lora_int_id] = versions, _digest(files)
        loaded, digest = self._adapters[lora.lora_int_id]
        if loaded != versions:
            raise UnknownIdentityError(
                f"the files of LoRA adapter {lora.lora_name} have changed since it was used first; "
                "load it again, under another number"
            )
        return digest

    def _media(self, features: Iterable[Any]) -> Iterable[Medium]:
        for feature in features:
            identifier = feature.identifier
            if not identifier or not self._hashes_media:
                raise UnknownIdentityError(f"its {feature.modality} has no hash of its content")
            place = feature.mm_position
            yield Medium(
                content=identifier.encode(), first_token=place.offset, token_count=place.length
            )


def _versions(files: Iterable[Path]) -> _Versions:
    states = [(path, path.stat()) for path in files]
    return tuple((path, state.st_size, state.st_mtime_ns, state.st_ino) for path, state in states)


def _digest(files: Sequence[Path]) -> bytes:
    digest = hashlib.sha256()
    for path, content in zip(files, file_digests(files), strict=True):
        digest.update(path.name.encode() + b"\0" + content)
    return digest.digest()
