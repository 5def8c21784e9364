"""What tests that run beside each other must not share, and the markers that keep it so.

``pytest -n COUNT --dist loadgroup`` gives all tests of a group to one worker, which runs one after
the other. (Not with pytest 9.2 and pytest-xdist 3.8: groups are ignored there, so
``pyproject.toml`` asks for an older pytest.) A test that is ``alone`` runs in a pass of its own,
with nothing beside.
"""

import pytest

LOOP_DEVICES = pytest.mark.xdist_group("loop devices")
"""The system has few of them, and finds a free one for whoever asks first."""
HUGE_PAGES = pytest.mark.xdist_group("huge pages")
"""The size of their pool is one setting of the system: raised, and set back to what it was."""
ALONE = pytest.mark.alone
"""Says what the machine gave it in so many seconds."""
