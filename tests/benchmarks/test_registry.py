"""Every program that writes results names the code that they describe."""

import pytest

from benchmarks.registry import CODE, MODULES, described_code
from kvstored.evidence.checkout import ROOT


@pytest.mark.parametrize("program", CODE)
def test_the_code_that_a_result_describes_is_there(program: str) -> None:
    assert CODE[program]
    for name in CODE[program]:
        path = ROOT / name
        assert path.exists(), name
        assert path.is_file() or any(path.rglob("*.py")), name


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_describes_itself_as_well(name: str) -> None:
    own = MODULES[name].replace(".", "/")
    assert {own, f"{own}.py"} & set(CODE[name])


@pytest.mark.parametrize("program", [name for name in CODE if "." in name])
def test_other_programs_describe_themselves_as_well(program: str) -> None:
    path = program.replace(".", "/")
    assert any(path == name or path.startswith(f"{name}/") for name in CODE[program])


def test_every_lab_that_writes_a_result_is_named() -> None:
    mains = (ROOT / "tests" / "faults").glob("*/__main__.py")
    labs = {path.parent.name for path in mains if "write_result(" in path.read_text()}
    assert {f"tests.faults.{lab}" for lab in labs} == {
        program for program in CODE if program.startswith("tests.faults.")
    }


def test_a_part_may_describe_less() -> None:
    assert described_code("cake", ["simulate"]) == CODE["cake simulate"]
    assert described_code("storage", ["cold_reads", "mixed"]) == CODE["storage"]
    assert set(described_code("cake", ["simulate", "table7"])) == set(CODE["cake"])
    with pytest.raises(KeyError):
        described_code("speed")
