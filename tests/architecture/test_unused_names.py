"""What a module defines is used in the package, not only by tests."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.architecture.source import PACKAGE, modules, tree_of

WORD = re.compile(r"\w+")
# A definition by its module and name, and why nothing in the package names it.
KEPT = {
    ("core/checkpoint.py", "checkpoint_json_schema"): "writes docs/schemas, which a test compares",
    ("core/transitions.py", "REOPENS"): "tests hold the guards of the queries against it, as against MOVES",
    (
        "engine/campaigns/documents.py",
        "MAX_CONTEXT_BYTES",
    ): "a promise to agents that tests and the bench hold",
    ("store/queries.py", "DIALECTS"): "the list of databases, for what tests and benches do with each",
    ("views/checkpoints.py", "checkpoint_view_json_schema"): "writes docs/schemas, which a test compares",
}


def definitions(path: str) -> Iterator[str]:
    """The names at the module level, but for dunder names."""
    for node in tree_of(path).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                # A decorator may register what it decorates.
                if isinstance(node, ast.ClassDef) or not node.decorator_list:
                    yield name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                yield name
            case ast.Assign(targets=targets):
                yield from (
                    part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
                )


def mentions(path: str) -> Iterator[str]:
    """The names that a module reads, imports, or has in a string."""
    tree = tree_of(path)
    docs = {id(doc) for node in ast.walk(tree) if (doc := docstring_of(node)) is not None}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names)
            case ast.Constant(value=str(text)) if id(node) not in docs:
                yield from WORD.findall(text)


def docstring_of(node: ast.AST) -> ast.Constant | None:
    match node:
        case ast.Expr(value=ast.Constant(value=str()) as text):
            return text
    return None


def unused() -> set[tuple[str, str]]:
    mentioned = Counter(name for module in modules() for name in mentions(module.path))
    for page in PACKAGE.rglob("*.html"):
        mentioned.update(WORD.findall(page.read_text(encoding="utf-8")))
    return {
        (module.path, name)
        for module in modules()
        for name in definitions(module.path)
        if not name.startswith("__") and not mentioned[name]
    }


def test_every_name_is_used_in_the_package_or_kept_for_a_reason() -> None:
    assert unused() - set(KEPT) == set(), "remove it, or give its reason in KEPT"


def test_every_reason_is_for_a_name_that_nothing_uses() -> None:
    assert set(KEPT) - unused() == set()
