"""Where a run of the labs leaves what it found: a file that says how and from what it came."""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def write_result(path: Path | None, values: Mapping[str, object]) -> None:
    """Writes ``values`` as JSON to ``path``, if there is one, behind command and commit."""
    if path is None:
        return
    document = {"command": _command(), "commit": COMMIT, **values}
    path.write_text(f"{json.dumps(document, indent=2)}\n")


def _command() -> str:
    """How this process was started, as the documents name it."""
    module = sys.modules["__main__"].__spec__
    if module is None:
        return shlex.join(["python", *sys.argv])
    return shlex.join(["python", "-m", module.name.removesuffix(".__main__"), *sys.argv[1:]])


def _commit() -> str:
    """The commit that the tree is at; ``-dirty`` where it is not as committed but for results."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return "not from a clone"
    others = (".", ":(exclude)docs/results")
    return f"{commit}-dirty" if _git("status", "--porcelain", "--", *others) else commit


def _git(*arguments: str) -> str:
    """What git prints; nothing where it fails or is not there."""
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return answer.stdout.strip()


COMMIT = _commit()
"""As the run began: it may take hours."""
