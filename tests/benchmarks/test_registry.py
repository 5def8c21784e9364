"""Every program that writes results names the code that they describe."""

from pathlib import Path

import pytest

from benchmarks.registry import CODE, MODULES, described_code
from kvstored.evidence.checkout import ROOT
from tests.benchmarks.import_closure import led_to, product_of_repository


@pytest.mark.parametrize("program", CODE)
def test_the_code_that_a_result_describes_is_there(program: str) -> None:
    assert CODE[program]
    for name in CODE[program]:
        path = ROOT / name
        assert path.exists(), name
        assert path.is_file() or any(path.rglob("*.py")), name


ONLY_PRINTS = ("benchmarks/benchmark.py", "benchmarks/report.py", "kvstored/evidence")


def is_in(path: str, names: tuple[str, ...]) -> bool:
    return any(path == name or path.startswith(f"{name}/") for name in names)


def left_out(start: str, described: tuple[str, ...]) -> list[str]:
    """Files of the product that a module leads to and that are not among those named."""
    paths = (str(path.relative_to(ROOT)) for path in led_to(start))
    files = (path for path in paths if Path(path).name != "__init__.py")
    return sorted(path for path in files if not is_in(path, (*described, *ONLY_PRINTS)))


def start_of(program: str) -> str:
    """The module that a benchmark, a part of one, or another program begins with."""
    name, _, part = program.partition(" ")
    return ".".join(filter(None, (MODULES.get(name, name), part)))


@pytest.mark.parametrize(
    "program", [name for name in CODE if start_of(name) in product_of_repository()]
)
def test_all_code_that_a_program_leads_to_is_described(program: str) -> None:
    """Else a result would pass as fresh after a change of that code."""
    assert left_out(start_of(program), CODE[program]) == []


def test_code_that_is_not_described_is_found() -> None:
    """Wherever it is imported, and where it is only named as the module of another process."""
    (arena,) = left_out(
        "benchmarks.engines", tuple(set(CODE["engines"]) - {"kvstored/server/held"})
    )
    assert arena == "kvstored/server/held/arena.py"
    assert "benchmarks/storage/worker_process.py" in left_out("benchmarks.storage", ())
    assert "benchmarks/storage/worker.py" in left_out("benchmarks.storage", ())


def test_every_benchmark_is_looked_at() -> None:
    named = {start_of(name) for name in (*MODULES, "cake simulate", "tests.faults.kill")}
    assert named <= product_of_repository().keys()


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_describes_itself_as_well(name: str) -> None:
    own = MODULES[name].replace(".", "/")
    assert {own, f"{own}.py"} & set(CODE[name])


@pytest.mark.parametrize("program", [name for name in CODE if "." in name])
def test_other_programs_describe_themselves_as_well(program: str) -> None:
    path = program if "/" in program else program.replace(".", "/")
    assert is_in(path, CODE[program])


def test_every_lab_that_writes_a_result_is_named() -> None:
    mains = (ROOT / "tests" / "faults").glob("*/__main__.py")
    labs = {path.parent.name for path in mains if "write_result(" in path.read_text()}
    assert {f"tests.faults.{lab}" for lab in labs} == {
        program for program in CODE if program.startswith("tests.faults.")
    }


def test_a_part_may_describe_less() -> None:
    assert described_code("cake", ["simulate"]) == CODE["cake simulate"]
    assert described_code("storage", ["cold_reads", "mixed"]) == CODE["storage"]
    assert set(described_code("cake", ["simulate", "table7"])) == {
        *CODE["cake simulate"],
        *CODE["cake"],
    }
    with pytest.raises(KeyError):
        described_code("speed")
