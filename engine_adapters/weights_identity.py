"""Which weights an engine runs."""

import hashlib
from pathlib import Path

from engine_adapters.file_digests import file_digests

PATTERNS = ("*.safetensors", "*.bin", "*.pt", "*.gguf", "*.npz")


class UnknownWeightsError(ValueError):
    """Weights that cannot be identified; the message says why and what helps."""


def weights_identity(model: str, *, commit: str | None) -> str:
    """The commit that a hub resolved, or a digest over the bytes of a local folder's files.

    Reads the files (about a second for each gigabyte), but those that ``file_digests`` remembers.
    Raises UnknownWeightsError, OSError.
    """
    folder = Path(model)
    if not folder.is_dir():
        if commit:
            return f"commit:{commit}"
        raise UnknownWeightsError(
            f"the weights of {model} have no known commit; name a revision or a local folder"
        )
    files = sorted({path for pattern in PATTERNS for path in folder.glob(pattern)})
    if not files:
        raise UnknownWeightsError(f"{model} has no weight files ({', '.join(PATTERNS)})")
    digest = hashlib.sha256()
    for path, content in zip(files, file_digests(files), strict=True):
        digest.update(path.name.encode() + b"\0" + content)
    return f"sha256:{digest.hexdigest()}"
