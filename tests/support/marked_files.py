"""Which files have labs, and tests that must be alone: a stage of them collects no others.

Collecting all tests takes as long as a small stage. So a file that has such tests imports what
marks them (``tests.support.scale``, ``labs`` or ``sharing.ALONE``), and is found by that.
"""

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAB = re.compile(r"^from tests\.support(\.(scale|labs) import| import .*\b(scale|labs)\b)")
LONGEST = ("tests/system/test_conversations.py", "tests/faults/media/test_machine.py")
"""Files of the longest labs. Begun last, one would keep a process busy for up to three quarters of
an hour after the other has nothing left."""
ALONE = re.compile(r"^from tests\.support(\.sharing import .*\bALONE\b| import .*\bsharing\b)")


def lab_files() -> list[str]:
    """Test files that may have tests of a size (``quick``, ``long``), from the root.

    The longest come first, as they are run; all others are sorted.
    """
    files = _files_with(LAB)
    return [*LONGEST, *(file for file in files if file not in LONGEST)]


def alone_files() -> list[str]:
    """Test files that may have tests that are ``alone``, from the root, sorted."""
    return _files_with(ALONE)


def strays(marked: Iterable[tuple[str, str]]) -> list[str]:
    """Sentences about tests that no stage would find, each given as its file and its marker."""
    found = {"quick": set(lab_files()), "long": set(lab_files()), "alone": set(alone_files())}
    return [
        f"{file} has a test marked {marker}, but does not import what marks it from tests.support, "
        f"so no stage would find it (tests/support/marked_files.py)"
        for file, marker in sorted(set(marked))
        if marker in found and file not in found[marker]
    ]


def _files_with(pattern: re.Pattern[str]) -> list[str]:
    return sorted(
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        if any(map(pattern.match, file.read_text(encoding="utf-8").splitlines()))
    )
