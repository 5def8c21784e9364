"""How much a reader has to hold in mind at once."""

import ast
from collections import Counter

import pytest

from tests.tidy import exceptions
from tests.tidy.classes import assigned_by, classes, facts_of, fields_of, parameter_count
from tests.tidy.shrinking import faults
from tests.tidy.sources import ROOT, functions, product_files

FILE_LINES_MAX = 400
MEDIAN_LINES_MAX = 120
FUNCTION_LINES_MAX = 70
FOLDER_MODULES_MAX = 25
MEMBERS_MAX = 12
ATTRIBUTES_MAX = 15
PARAMETERS_MAX = 8
SEAM_MEMBERS_MAX = 6
MAP_LINES_MAX = 300


def test_the_map_outgrew_its_page() -> None:
    """Bug: it had 303 lines, and nothing held its limit."""
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    assert len(lines) <= MAP_LINES_MAX


def test_files_can_be_read_in_one_sitting() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in product_files()}
    assert [str(path) for path, lines in lengths.items() if lines > FILE_LINES_MAX] == []
    assert sorted(lengths.values())[len(lengths) // 2] <= MEDIAN_LINES_MAX


def test_a_folder_is_not_crowded() -> None:
    modules = Counter(path.parent for path in product_files() if path.name != "__init__.py")
    assert [str(one) for one, count in modules.items() if count > FOLDER_MODULES_MAX] == []


def test_functions_do_one_thing() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in product_files()
        for node in functions(path)
        if node.end_lineno and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_classes_have_few_public_members() -> None:
    found = {one.name: one.members for one in classes() if not one.is_seam}
    assert faults(found, exceptions.MEMBERS, limit=MEMBERS_MAX) == []


def test_classes_have_few_attributes() -> None:
    """Records apart: see ``ClassFacts``."""
    found = {one.name: one.attributes for one in classes()}
    assert faults(found, exceptions.ATTRIBUTES, limit=ATTRIBUTES_MAX) == []


def test_constructors_have_few_parameters() -> None:
    found = {one.name: one.parameters for one in classes()}
    assert faults(found, exceptions.PARAMETERS, limit=PARAMETERS_MAX) == []


def test_seams_are_narrow() -> None:
    """What somebody has to write to plug something in."""
    found = {one.name: one.members for one in classes() if one.is_seam}
    assert faults(found, exceptions.SEAM_MEMBERS, limit=SEAM_MEMBERS_MAX) == []


@pytest.fixture
def sample() -> ast.ClassDef:
    node = ast.parse(
        "class Sample:\n"
        "    field: int\n"
        "    shared: ClassVar[int] = 1\n"
        "    def __init__(self, one, *rest, two, **others):\n"
        "        self.first, self.second = one, two\n"
        "        self.second = one.other\n"
    ).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def test_attributes_are_fields_and_what_is_assigned_to_self(sample: ast.ClassDef) -> None:
    init = sample.body[2]
    assert isinstance(init, ast.FunctionDef)
    assert fields_of(sample) == {"field"}
    assert set(assigned_by([init])) == {"first", "second"}
    assert parameter_count(init) == 4


RECORD = """
class Sample:
    one: int
    two: int
    @property
    def both(self): ...
    def method(self): ...
    def __init__(self): self.three = 3
"""


@pytest.mark.parametrize(
    ("decorator", "members", "attributes"),
    [
        ("@dataclass(frozen=True, slots=True)", 1, 0),
        ("@dataclass(slots=True, kw_only=True)", 2, 3),
        ("@dataclass(frozen=False)", 2, 3),
        ("@dataclass", 2, 3),
        ("", 2, 3),
    ],
)
def test_fields_and_properties_of_records_count_for_nothing(
    decorator: str, members: int, attributes: int
) -> None:
    node = ast.parse(decorator + RECORD).body[0]
    assert isinstance(node, ast.ClassDef)
    facts = facts_of(node, "module")
    assert (facts.members, facts.attributes) == (members, attributes)
