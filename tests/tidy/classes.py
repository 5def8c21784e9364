"""What a class has: public members, attributes, parameters of its constructor."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.tidy.sources import module_of, product_files, tree_of

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFacts:
    """One class. ``name`` is that of its module and its own.

    A record is a frozen dataclass: its fields are those of a file, a message or an engine, are set
    once and hide nothing. A property of one is one more value, worked out from the others.
    """

    name: str
    members: int
    """Public methods that it defines itself; of a class that is no record properties, too."""
    attributes: int
    """Fields, and whatever its methods assign to ``self``; 0 for a record."""
    parameters: int
    """Of ``__init__``, without ``self``; 0 where it writes none."""
    is_seam: bool


@cache
def classes() -> list[ClassFacts]:
    """Every class of the product."""
    return [
        facts_of(node, module_of(path))
        for path in product_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    ]


def facts_of(node: ast.ClassDef, module: str) -> ClassFacts:
    """What a class of a module has."""
    methods = [item for item in node.body if isinstance(item, Function)]
    is_record = any(map(is_frozen, node.decorator_list))
    public = {
        method.name
        for method in methods
        if not (method.name.startswith("_") or (is_record and is_property(method)))
    }
    bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
    return ClassFacts(
        name=f"{module}.{node.name}",
        members=len(public),
        attributes=0 if is_record else len(fields_of(node) | set(assigned_by(methods))),
        parameters=sum(parameter_count(method) for method in methods if method.name == "__init__"),
        is_seam="Protocol" in bases,
    )


def is_frozen(decorator: ast.expr) -> bool:
    """Whether a decorator makes a frozen dataclass."""
    return ast.unparse(decorator).startswith("dataclass(") and any(
        keyword.arg == "frozen" and ast.unparse(keyword.value) == "True"
        for keyword in getattr(decorator, "keywords", ())
    )


def is_property(method: Function) -> bool:
    """Whether a method is read like a field."""
    return any(
        ast.unparse(decorator) in {"property", "cached_property"}
        for decorator in method.decorator_list
    )


def fields_of(node: ast.ClassDef) -> set[str]:
    """Fields that the body of a class declares, as those of dataclasses."""
    return {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and not ast.unparse(item.annotation).startswith("ClassVar")
    }


def assigned_by(methods: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> Iterator[str]:
    """Attributes that methods assign to ``self``."""
    for method in methods:
        for node in ast.walk(method):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                yield node.attr


def parameter_count(method: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters besides ``self``."""
    arguments = method.args
    listed = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
    return listed - 1 + (arguments.vararg is not None) + (arguments.kwarg is not None)
