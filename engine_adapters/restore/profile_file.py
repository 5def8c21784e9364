"""The file of a cost profile: JSON, one key for each field."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from engine_adapters.restore.cost_profile import CostProfile, ProfileError

_MAY_LACK = frozenset({"compute_spread", "read_spread"})
_REMEDY = "calibrate again"


def to_json(profile: CostProfile) -> str:
    """The text of the file."""
    return json.dumps(asdict(profile), indent=2) + "\n"


def from_json(text: str) -> CostProfile:
    """The profile of a text; raises ProfileError for one that is not exactly a profile."""
    try:
        document: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProfileError(f"it is not JSON ({error}); {_REMEDY}") from None
    if not isinstance(document, dict):
        raise ProfileError(f"it is not a JSON object; {_REMEDY}")
    names = {field.name for field in fields(CostProfile)}
    for problem, keys in (
        ("has the unknown keys", document.keys() - names),
        ("lacks the keys", names - _MAY_LACK - document.keys()),
    ):
        if keys:
            raise ProfileError(f"it {problem} {', '.join(sorted(keys))}; {_REMEDY}")
    return CostProfile(**document)


def save_profile(path: Path, profile: CostProfile) -> None:
    """Replaces the file as a whole; raises OSError."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(to_json(profile))
    draft.replace(path)


def load_profile(path: Path) -> CostProfile:
    """Raises ProfileError, which names the file, or OSError where it cannot be read."""
    try:
        return from_json(path.read_text())
    except (ProfileError, UnicodeDecodeError) as error:
        raise ProfileError(f"the cost profile {path} cannot be used: {error}") from None
