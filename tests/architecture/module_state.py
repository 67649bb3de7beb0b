"""Finds what the package remembers at module level: names, attributes of classes and caches that change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.architecture.source import modules, tree_of

LITERALS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
CONTAINERS = {"dict", "list", "set", "bytearray", "deque", "defaultdict", "Counter", "OrderedDict"}
# Methods that change a container.
CHANGES = {
    "add",
    "append",
    "appendleft",
    "clear",
    "difference_update",
    "discard",
    "extend",
    "insert",
    "intersection_update",
    "pop",
    "popitem",
    "popleft",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
}
# What these return never changes.
FIXED = {
    "Decoder",
    "Encoder",
    "IPv4Network",
    "IPv6Network",
    "MappingProxyType",
    "NewType",
    "ParamSpec",
    "Path",
    "Raw",
    "Struct",
    "TypeVar",
    "bytes",
    "compile",
    "compiled_late",
    "datetime",
    "encode",
    "field",
    "files",
    "from_bytes",
    "fromisoformat",
    "frozenset",
    "getLogger",
    "getattr",
    "join",
    "lower",
    "maketrans",
    "object",
    "pack",
    "partial",
    "range",
    "staticmethod",
    "timedelta",
    "total_seconds",
    "tuple",
}
FIXED_TYPES = {"str", "bytes", "int", "float", "bool", "tuple", "frozenset", "Pattern"}
CACHES = {"cache", "lru_cache"}


@cache
def remembered() -> set[tuple[str, str]]:
    """The path of each module, and the name in it, that holds something which changes."""
    return {found for module in modules() for found in remembered_in(module.path)}


def remembered_in(path: str) -> Iterator[tuple[str, str]]:
    yield from _globals(path)
    yield from _objects(path)
    yield from _changed(path)
    yield from _caches(path)


def _globals(path: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Global):
            yield from ((path, name) for name in node.names)


def _objects(path: str) -> Iterator[tuple[str, str]]:
    """Names for what a call returned, unless it is known never to change."""
    for name, value in _bound(path).items():
        if isinstance(value, ast.Call) and not _is_fixed(value, path) and _called(value) not in CONTAINERS:
            yield path, name


def _changed(path: str) -> Iterator[tuple[str, str]]:
    """Containers, classes and modules that a function changes, wherever they are from."""
    known = _names(path)
    for function in _functions(path):
        for node in ast.walk(function):
            for target in _targets(node):
                if isinstance(target, ast.Name) and target.id in known:
                    where = known[target.id]
                    if where is not None and not _is_local(function, target.id):
                        yield where
                elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    # As `Class.attribute`, or `module.NAME`.
                    where = known.get(target.value.id)
                    if where is not None and not _is_local(function, target.value.id):
                        yield where[0], f"{where[1]}.{target.attr}".lstrip(".")


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that a statement or a call changes: `x` of `x[0] = 1` and of `x.append(1)`."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            yield from (changed for target in targets for changed in _inside(target))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            yield from _inside(target)
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in CHANGES:
            yield value


def _inside(target: ast.expr) -> Iterator[ast.expr]:
    match target:
        case ast.Subscript(value=value):
            yield value
        case ast.Attribute():
            yield target
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            yield from (changed for part in parts for changed in _inside(part))


def _caches(path: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in node.decorator_list:
                decorator = one.func if isinstance(one, ast.Call) else one
                if ast.unparse(decorator).rpartition(".")[2] in CACHES:
                    yield path, node.name


# --- what a name stands for


@cache
def _bound(path: str) -> dict[str, ast.expr]:
    """By its name, each value that a module or one of its classes binds; also under `if` and `try`."""
    return dict(_bindings(tree_of(path).body, ""))


def _bindings(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from ((f"{prefix}{ast.unparse(target)}", value) for target in targets)
            case ast.AnnAssign(target=target, value=ast.expr() as value) if not prefix:
                yield ast.unparse(target), value
            case ast.ClassDef(name=name) if not _is_record(node):
                yield from _bindings(node.body, f"{name}.")
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                for part in ("body", "orelse", "finalbody"):
                    yield from _bindings(getattr(node, part, []), prefix)


@cache
def _names(path: str) -> dict[str, tuple[str, str] | None]:
    """By its name here, where each container, class or module of the package is from."""
    paths = {module.name: module.path for module in modules()}
    found: dict[str, tuple[str, str] | None] = {}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name, inner = alias.asname or alias.name, f"{node.module}.{alias.name}"
                if inner in paths:
                    found[name] = (paths[inner], "")
                elif node.module in paths:
                    found[name] = (paths[node.module], alias.name)
    for name, value in _bound(path).items():
        if isinstance(value, LITERALS) or (isinstance(value, ast.Call) and _called(value) in CONTAINERS):
            found[name] = (path, name)
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = (path, node.name)
    return found


def _functions(path: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _is_local(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    """Whether the function has a variable or a parameter of that name."""
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if any(one is not None and one.arg == name for one in [*listed, arguments.vararg, arguments.kwarg]):
        return True
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(function)
    )


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _is_fixed(call: ast.Call, path: str) -> bool:
    """By its name, by the annotation of what our own function returns, or as an object that never changes."""
    name = _called(call)
    if name in FIXED:
        return True
    match _definition_of(name, path):
        case ast.ClassDef() as made:
            parts = [part for part in call.args if isinstance(part, ast.Call)]
            return not _changes_itself(made) and all(_is_fixed(part, path) for part in parts)
        case ast.FunctionDef(returns=ast.expr() as returned):
            outer = ast.unparse(returned).partition("[")[0].rpartition(".")[2]
            known = _definition_of(outer, _defined_in(name, path))
            return outer in FIXED_TYPES or (isinstance(known, ast.ClassDef) and not _changes_itself(known))
    return False


def _definition_of(name: str, path: str) -> ast.ClassDef | ast.FunctionDef | None:
    for node in tree_of(_defined_in(name, path)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    return None


def _defined_in(name: str, path: str) -> str:
    where = _names(path).get(name)
    return path if where is None else where[0]


def _is_record(found: ast.ClassDef) -> bool:
    """A frozen struct, or the like: its fields have defaults, of which each object gets a copy."""
    frozen = any(one.arg == "frozen" and ast.unparse(one.value) == "True" for one in found.keywords)
    bases = {ast.unparse(base).rpartition(".")[2] for base in found.bases}
    return frozen or bool(bases & {"Struct", "Params", "View", "NamedTuple", "TypedDict", "Protocol"})


def _changes_itself(found: ast.ClassDef) -> bool:
    """Whether a method, other than the one that makes the object, changes it; threads and contexts do."""
    if any(ast.unparse(base) in {"threading.local", "local"} for base in found.bases):
        return True
    return not _is_record(found) and any(
        ast.unparse(target).startswith("self.")
        for method in found.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name != "__init__"
        for node in ast.walk(method)
        for target in _targets(node)
    )
