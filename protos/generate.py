"""Generates the package ``kvstored_protos`` from ``protos/kvstored/v1/*.proto``.

``python protos/generate.py [OUTPUT]`` writes the package below OUTPUT (default:
this folder). The proto files import each other as ``kvstored/v1/...``, as other
languages expect; the Python package has a name of its own because ``kvstored`` is
the daemon.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

PROTOS = Path(__file__).parent


def generate(output: Path, *, protos: Path = PROTOS) -> None:
    """Writes ``output/kvstored_protos`` from the files below ``protos``.

    Raises RuntimeError when protoc refuses a file.
    """
    sources = sorted(str(path) for path in (protos / "kvstored").rglob("*.proto"))
    # The protoc plugins are console scripts beside this interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as scratch:
        arguments = [
            "protoc",
            f"-I{protos}",
            f"-I{well_known}",
            f"--python_out={scratch}",
            f"--grpc_python_out={scratch}",
            f"--mypy_out=quiet:{scratch}",
            f"--mypy_grpc_out=quiet:{scratch}",
            *sources,
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError("protoc refused the files above")
        package = output / "kvstored_protos"
        shutil.rmtree(package, ignore_errors=True)
        (package / "v1").mkdir(parents=True)
        for folder in (package, package / "v1"):
            folder.joinpath("__init__.py").write_text(
                '"""Generated from protos/kvstored by protos/generate.py."""\n'
            )
        package.joinpath("py.typed").touch()
        for generated in sorted((Path(scratch) / "kvstored" / "v1").iterdir()):
            text = generated.read_text().replace("kvstored.v1 import", "kvstored_protos.v1 import")
            text = text.replace("import kvstored.v1", "import kvstored_protos.v1")
            (package / "v1" / generated.name).write_text(text)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS)
