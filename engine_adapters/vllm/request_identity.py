"""What of a vLLM request changes its states. Pure but for reading LoRA weights."""

import functools
import hashlib
from pathlib import Path
from typing import Any

from engine_adapters.vllm.chunk_keys import Medium, RequestIdentity


class UnknownIdentityError(ValueError):
    """A request whose states depend on something unknown; the message names it."""


def identity_of(request: Any) -> RequestIdentity:
    """The identity of an engine's request; raises UnknownIdentityError."""
    if request.prompt_token_ids is None or getattr(request, "prompt_embeds", None) is not None:
        raise UnknownIdentityError("its prompt has embeddings instead of tokens")
    if getattr(request, "resumable", False):
        raise UnknownIdentityError("its prompt is still being streamed in")
    return RequestIdentity(
        adapter=_adapter(request.lora_request),
        salt=request.cache_salt or "",
        media=tuple(_medium(feature) for feature in request.mm_features),
    )


def _adapter(lora: Any) -> bytes:
    if lora is None:
        return b""
    folder = Path(lora.lora_path)
    try:
        if not folder.is_dir():
            raise UnknownIdentityError(
                f"the LoRA adapter {lora.lora_name} is no local folder, so its weights are unknown"
            )
        # A file that is replaced has another time of change.
        state = tuple(
            (path.name, path.stat().st_size, path.stat().st_mtime_ns)
            for path in sorted(folder.iterdir())
            if path.is_file()
        )
        return _folder_digest(folder, state)
    except OSError as error:
        raise UnknownIdentityError(
            f"the weights of LoRA adapter {lora.lora_name} cannot be read: {error}"
        ) from error


@functools.lru_cache(maxsize=64)
def _folder_digest(folder: Path, state: tuple[tuple[str, int, int], ...]) -> bytes:
    digest = hashlib.sha256()
    for name, _, _ in state:
        with (folder / name).open("rb") as file:
            digest.update(name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.digest()


def _medium(feature: Any) -> Medium:
    identifier = feature.identifier
    if not identifier:
        raise UnknownIdentityError(f"its {feature.modality} has no hash")
    place = feature.mm_position
    return Medium(content=identifier.encode(), first_token=place.offset, token_count=place.length)
