"""What the source says about itself: its modules, their first docstring lines, imports and declared names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "holdfast"
DOCS = ROOT / "docs"


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One Python file of the package."""

    # Relative to the package, as the map shows it: `core/ids.py`.
    path: str
    # As it is imported: `holdfast.core.ids`.
    name: str

    @property
    def part(self) -> str:
        """The package or top-level module that it belongs to; the package itself is `holdfast`."""
        return part_of(self.name)

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def first_line(self) -> str:
        """The first line of its docstring; empty when there is none."""
        return (ast.get_docstring(tree_of(self.path)) or "").partition("\n")[0]


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """A name that we chose: of a module, a class, a function, a parameter or a field."""

    text: str
    kind: str
    where: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text} in {self.where}"


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package, in the order of their paths."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        path = file.relative_to(PACKAGE).as_posix()
        name = ".".join(["holdfast", *path.removesuffix(".py").split("/")]).removesuffix(".__init__")
        found.append(Module(path=path, name=name))
    return tuple(sorted(found, key=lambda module: module.path.removesuffix("__init__.py")))


@cache
def tree_of(path: str) -> ast.Module:
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"), filename=path)


def module_at(path: str) -> Module:
    return next(module for module in modules() if module.path == path)


def part_of(name: str) -> str:
    return name.split(".")[1] if "." in name else name


@cache
def imports_of(path: str) -> frozenset[str]:
    """Every module that a module imports: also lazily, for its types only, and by a name in a string."""
    ours = {module.name for module in modules()}
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; write the whole name"
            assert node.module is not None
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & ours) or {node.module}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value.partition(":")[0]} & (ours - {"holdfast"})
    return frozenset(found)


@cache
def imports_at_runtime(path: str, *, also_lazy: bool = False) -> frozenset[str]:
    """Our modules that a module imports when it is imported itself; with `also_lazy`, also those that its
    functions import when they are called. Imports for types only are left out."""
    ours = {module.name for module in modules()}
    found: set[str] = set()
    for node in _executed(tree_of(path), also_lazy=also_lazy):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            # A package's own file runs for every name that is no module of its own.
            found |= names & ours
            found |= set() if names <= ours else {str(node.module)}
    return frozenset(found & ours)


def _executed(node: ast.AST, *, also_lazy: bool) -> Iterator[ast.AST]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.If) and ast.unparse(inner.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and not also_lazy:
            continue
        yield inner
        yield from _executed(inner, also_lazy=also_lazy)


def import_cycles(*, also_lazy: bool = False) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others."""
    graph = {module.name: imports_at_runtime(module.path, also_lazy=also_lazy) for module in modules()}
    reached = {name: _reached_from(name, graph) for name in graph}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def _reached_from(name: str, graph: Mapping[str, frozenset[str]]) -> set[str]:
    reached: set[str] = set()
    todo = [name]
    while todo:
        new = graph[todo.pop()] - reached
        reached |= new
        todo += new
    return reached


def imports_between_parts() -> set[tuple[str, str]]:
    """Which part of the package imports which other."""
    return {
        (module.part, part_of(imported))
        for module in modules()
        for imported in imports_of(module.path)
        if imported.split(".")[0] == "holdfast" and part_of(imported) != module.part
    }


def strings_in(path: str) -> set[str]:
    """Every string literal of a module."""
    return {
        node.value
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def declared_names() -> Iterator[Name]:
    """Every name that the package declares."""
    for module in modules():
        for segment in module.name.split(".")[1:]:
            yield Name(text=segment, kind="module", where=module.path)
        for node in ast.walk(tree_of(module.path)):
            yield from _names_at(node, module.path)


def _names_at(node: ast.AST, path: str) -> Iterator[Name]:
    match node:
        case ast.ClassDef():
            yield Name(text=node.name, kind="class", where=path)
            for inner in node.body:
                if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    yield Name(text=inner.target.id, kind="field", where=path)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield Name(text=node.name, kind="function", where=path)
            arguments = node.args
            listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            for argument in [*listed, arguments.vararg, arguments.kwarg]:
                if argument is not None:
                    yield Name(text=argument.arg, kind="parameter", where=path)
