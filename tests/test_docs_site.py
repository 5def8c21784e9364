"""The documents as a site, with links that lead somewhere, and code blocks that can be read."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import kvstored_client
import kvstored_client.testing
from tests.support.scale import Scale, at

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def is_shell(text: str) -> None:
    result = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    if result.returncode:
        raise ValueError(result.stderr)


READERS: dict[str, Callable[[str], object]] = {
    "python": ast.parse,
    "toml": tomllib.loads,
    "json": json.loads,
    "yaml": yaml.safe_load,
    "sh": is_shell,
}
"""What reads a block of each language; none can tell whether it does what is said."""


def blocks() -> Iterator[tuple[str, str, str]]:
    """Name, language and text of every block that a reader may copy."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for number, (language, text) in enumerate(_BLOCK.findall(path.read_text())):
            if language in READERS:
                yield f"{path.name}-{number}", language, text


@pytest.mark.parametrize(
    ("language", "text"), [pytest.param(*rest, id=name) for name, *rest in blocks()]
)
def test_a_code_block_is_of_its_language(language: str, text: str) -> None:
    READERS[language](text)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    site = tmp_path_factory.mktemp("site")

    def build(source: Path) -> str:
        command = [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict"]
        result = subprocess.run(
            [*command, "--config-file", str(source / "mkdocs.yml"), "--site-dir", str(site)],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"},
            check=False,
        )
        return "" if result.returncode == 0 else result.stderr + result.stdout

    return build


@pytest.mark.parametrize("module", [kvstored_client, kvstored_client.testing])
def test_the_reference_has_every_public_name(module: ModuleType) -> None:
    lines = (ROOT / "docs" / "reference.md").read_text().splitlines()
    assert {f"::: {module.__name__}.{name}" for name in module.__all__} <= set(lines)


@at(Scale.QUICK)
def test_every_link_of_the_site_leads_somewhere(built: Callable[[Path], str]) -> None:
    assert built(ROOT) == ""


@at(Scale.QUICK)
def test_links_that_lead_nowhere_are_found(built: Callable[[Path], str], tmp_path: Path) -> None:
    """Without the texts of the SDK, which take most of a build; what leads there is missed, too."""
    links = ["nowhere.md", "install.md#nowhere"]
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for package in ("client", "protos"):
        (tmp_path / package).symlink_to(ROOT / package)
    (tmp_path / "docs" / "reference.md").write_text("# SDK reference\n")
    with (tmp_path / "docs" / "security.md").open("a") as page:
        page.writelines(f"\n[a link]({link})\n" for link in links)
    warnings = [line for line in built(tmp_path).splitlines() if "WARNING" in line]
    assert [link for link in links if not any(f"'{link}'" in line for line in warnings)] == []
