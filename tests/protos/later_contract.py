"""The contract as a later minor version may have it: every message has one more field.

``write`` generates it as a package ``kvstored_protos`` of its own. Whatever a process that imports
it sends has that field, in the messages within messages too.
"""

import importlib.util
import re
from pathlib import Path

PROTOS = Path(__file__).parents[2] / "protos"
FIELD = "added_later"
NUMBER = 1000
_MESSAGE = re.compile(r"^( *message \w+ \{)(\}?)", re.MULTILINE)
_FILL = f"""

def _with_more(message):
    message.{FIELD} = "from a later version"
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else [value]:
            _with_more(each)


def _filled(kind):
    plain = kind.SerializeToString

    def serialized(message, **options):
        # What is hashed or kept on media is asked for as deterministic; the rest travels.
        if options:
            return plain(message, **options)
        more = type(message)()
        more.CopyFrom(message)
        _with_more(more)
        return plain(more)

    kind.SerializeToString = serialized


for _name in DESCRIPTOR.message_types_by_name:
    _filled(globals()[_name])
"""


def write(output: Path) -> None:
    """Writes the package below ``output``, which goes to the front of PYTHONPATH."""
    changed = output / "protos"
    for source in (PROTOS / "kvstored").rglob("*.proto"):
        target = changed / source.relative_to(PROTOS)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_more_fields(source.read_text()))
    _generator().generate(output, protos=changed)
    for module in (output / "kvstored_protos" / "v1").glob("*_pb2.py"):
        module.write_text(module.read_text() + _FILL)


def with_more_fields(text: str) -> str:
    """A proto file of which every message has one more field."""
    return _MESSAGE.sub(rf"\1\n  string {FIELD} = {NUMBER};\n\2", text)


def _generator():
    """``protos/generate.py``, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("generate_protos", PROTOS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
