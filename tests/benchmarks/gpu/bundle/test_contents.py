import pytest

from benchmarks.gpu.bundle.build import _required
from benchmarks.gpu.bundle.contents import (
    ROOTS,
    THERE,
    closure,
    is_packed,
    is_used,
    normal,
    wheel_prefix,
)


def test_all_that_is_needed_is_found_once() -> None:
    needs = {"a": ["B_b>=1", "c"], "b-b": ["c[extra]>2"], "c": ["torch", "a"]}
    assert closure(["a"], needs.__getitem__) == ["a", "b-b", "c"]
    assert closure(["A"], needs.__getitem__, there=frozenset({"c"})) == ["a", "b-b"]


def test_what_is_packed_needs_no_pytorch_and_has_what_the_daemon_imports() -> None:
    """By what is installed here."""
    names = closure(ROOTS, _required)
    assert not THERE & set(names)
    assert {"pydantic-core", "multidict", "pluggy", "pygments"} <= set(names)
    assert {normal(name) for name in ROOTS} <= set(names)


@pytest.mark.parametrize(
    ("path", "packed"),
    [
        ("kvstored/daemon.py", True),
        ("tests/conftest.py", True),
        ("README.md", True),
        ("docs/design.md", True),
        ("docs/results/storage.json", False),
        ("docs/images/page.png", False),
        ("benchmarks/quality/model/config.json", False),
        (".gitignore", False),
    ],
)
def test_code_and_texts_are_packed(path: str, packed: bool) -> None:
    assert is_packed(path) is packed


@pytest.mark.parametrize(
    ("member", "used"),
    [
        ("numpy/_core/tests/test_umath.py", False),
        ("numpy/__init__.pyi", False),
        ("zstandard/_cffi.cpython-312-x86_64-linux-gnu.so", False),
        ("zstandard/backend_c.cpython-312-x86_64-linux-gnu.so", True),
        ("numpy/testing/__init__.py", True),
    ],
)
def test_members_that_nothing_imports_stay_out(member: str, used: bool) -> None:
    assert is_used(member) is used


def test_wheels_are_found_by_name_and_version() -> None:
    assert wheel_prefix("Pydantic-Core", "2.1") == "pydantic_core-2.1-"
