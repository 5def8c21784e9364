"""Where cost profiles lie, one for each model, dtype, kind of device and host."""

import os
import platform
import re
from pathlib import Path

import torch

from engine_adapters.restore import CostProfile, ProfileError, load_profile
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import shape_of


def machine_name(device: torch.device) -> str:
    """What a profile says of where it was measured: host, and GPU or CPU threads.

    Costs of another one are used all the same, and ``choose_schedule`` says so.
    """
    if device.type == "cuda":
        return f"{platform.node()}, {torch.cuda.get_device_name(device)}"
    return f"{platform.node()}, {torch.get_num_threads()} threads"


def default_profile_path(model: Model, fingerprint: str) -> Path:
    """A file in the user's cache directory (XDG_CACHE_HOME), whether it exists or not."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The specification has relative paths ignored.
    folder = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    dtype = str(model.dtype).removeprefix("torch.")
    # Homes are often shared between machines, whose costs differ.
    host = re.sub(r"[^\w.-]", "_", platform.node())
    name = f"{fingerprint[:32]}-{dtype}-{model.device.type}-{host}.json"
    return folder / "kvstored" / "profiles" / name


def find_profile(model: Model, fingerprint: str, path: Path | None) -> CostProfile | None:
    """The profile in ``path``, or else that of the default place if there is one.

    Raises ProfileError for a file that holds none of this model and dtype, and OSError
    for one that cannot be read.
    """
    if path is None:
        path = default_profile_path(model, fingerprint)
        if not path.exists():
            return None
    profile = load_profile(path)
    shape = shape_of(model)
    if profile.model != fingerprint or profile.hidden_bytes != shape.hidden_bytes:
        raise ProfileError(
            f"the cost profile {path} is of another model or dtype: calibrate this one"
        )
    return profile
