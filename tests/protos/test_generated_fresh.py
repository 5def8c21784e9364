import subprocess
import sys
from pathlib import Path

PROTOS = Path(__file__).parents[2] / "protos"


def package_texts(output: Path) -> dict[str, str]:
    package = output / "kvstored_protos"
    files = [*package.rglob("*.py"), *package.rglob("*.pyi")]
    return {str(file.relative_to(package)): file.read_text() for file in files}


def test_generated_code_is_that_of_the_proto_files(tmp_path: Path) -> None:
    """Fails when a proto file was changed without ``make protos``."""
    subprocess.run([sys.executable, PROTOS / "generate.py", tmp_path], check=True)
    generated, committed = package_texts(tmp_path), package_texts(PROTOS)
    assert generated.keys() == committed.keys()
    assert [name for name in generated if generated[name] != committed[name]] == []
