"""What git knows of results and of the code that they describe."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvstored.evidence.checkout import git

_DIGITS = 7
"""As documents print a commit: the same in every clone, whatever else that has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What happened to some paths since a commit; files count uncommitted changes, too."""

    commit_count: int
    file_count: int


def last_change(path: Path, root: Path) -> tuple[str, str] | None:
    """The commit that last changed this file, and its date; None where git does not know.

    A clone without its history would name the oldest commit that it has, so it does not know.
    """
    if git("rev-parse", "--is-shallow-repository", root=root) != "false":
        return None
    answer = git("log", "-1", "--format=%H %cI", "--", str(path), root=root)
    if not answer:
        return None
    commit, date = answer.split()
    return commit[:_DIGITS], date


def is_known(commit: str, root: Path) -> bool:
    """Whether the clone has this commit."""
    return git("cat-file", "-e", f"{commit}^{{commit}}", root=root) is not None


def changes_since(commit: str, paths: Sequence[str], root: Path) -> Changes | None:
    """What happened to ``paths`` since ``commit``; None where git cannot tell."""
    commits = git("rev-list", "--count", f"{commit}..HEAD", "--", *paths, root=root)
    files = git("diff", "--name-only", commit, "--", *paths, root=root)
    if commits is None or files is None:
        return None
    return Changes(commit_count=int(commits), file_count=len(files.splitlines()))
