"""Marks tests that coverage's tracer does not follow: it would triple the time that they take.

They draw or simulate much, in the stage of the pure parts (``tests/support/pure_tests.py``); what
they reach of these, others of the stage reach as well.
"""

import pytest

UNTRACED = pytest.mark.no_cover
"""The marker of pytest-cov."""
