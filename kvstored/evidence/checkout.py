"""What git says of the code that runs here."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Of the checkout, if it is one."""
COMMIT_DIGITS = 12
PACKED_COMMIT = "packed-commit"
"""The file at the root of a bundle."""
_OUTSIDE_RESULTS = (".", ":(exclude)docs/results")
"""A measurement that writes its result does not make the tree that it measured another one."""


def git(*arguments: str, root: Path = ROOT) -> str | None:
    """What git prints, or None where it fails or is not there."""
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def commit_of_tree(root: Path = ROOT) -> str | None:
    """The commit that the tree is at; None outside a checkout, as below another project's."""
    top = git("rev-parse", "--show-toplevel", root=root)
    if top is None or Path(top).resolve() != root.resolve():
        return None
    return git("rev-parse", f"--short={COMMIT_DIGITS}", "HEAD", root=root)


def packed_commit(root: Path = ROOT) -> str | None:
    """The commit that a bundle of this code was packed from; None where it is no bundle."""
    try:
        return (root / PACKED_COMMIT).read_text(encoding="ascii").strip()
    except OSError:
        return None


def is_tree_clean(root: Path = ROOT) -> bool:
    """Whether the tree is as committed, but for results."""
    return git("status", "--porcelain", "--", *_OUTSIDE_RESULTS, root=root) == ""
