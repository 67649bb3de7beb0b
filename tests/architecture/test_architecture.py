"""docs/architecture.md and the generated pages say what the code does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.architecture.pages import ARCHITECTURE, GENERATED
from tests.architecture.source import (
    PACKAGE,
    ROOT,
    import_cycles,
    imports_between_parts,
    imports_of,
    module_at,
    modules,
    strings_in,
)

DRAWN_ARROW = re.compile(r"^ +(\w+) --> (\w+)$", re.MULTILINE)
MAP_LINE = re.compile(r"^ *- `([\w/.]+)` (.+)$", re.MULTILINE)
ROUTE = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.MULTILINE)
STOP = re.compile(r"`([\w/.]+)`")
QUERY_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

DATABASE_DRIVERS = {"apsw", "sqlite3", "psycopg", "psycopg_pool"}
BACKEND = re.compile(r"holdfast\.store\.(?:sqlite|postgres)\w*")
# Code that opens a store must name a backend; inside the store its own files know each other.
MAY_NAME_A_BACKEND = {"app", "testing", "store"}


def section(title: str) -> str:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/architecture.md has no section {title!r}"
    return found[1]


def routes() -> dict[str, list[str]]:
    return {title: STOP.findall(stops) for title, stops in ROUTE.findall(section("Routes"))}


def test_the_diagram_draws_exactly_the_imports_that_exist() -> None:
    drawn = set(DRAWN_ARROW.findall(section("Packages")))

    assert drawn == imports_between_parts(), "run `make docs`"


def test_the_map_has_one_line_for_each_module_and_it_is_the_first_of_its_docstring() -> None:
    drawn = dict(MAP_LINE.findall(section("Map")))
    actual = {
        module.path.removesuffix("__init__.py") or "__init__.py": module.first_line for module in modules()
    }

    assert drawn == actual, "run `make docs`"


def test_every_module_says_in_one_sentence_what_it_is() -> None:
    """A module without a docstring has no sentence, either."""
    assert [module.path for module in modules() if not module.first_line.endswith(".")] == []


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path](), "run `make docs`"


def test_there_are_routes() -> None:
    assert len(routes()) >= 5


@pytest.mark.parametrize("title", routes())
def test_a_route_has_at_most_six_stops_and_each_is_reached_from_an_earlier_one(title: str) -> None:
    stops = routes()[title]

    assert 2 <= len(stops) <= 6
    for stop in stops:
        assert (PACKAGE / stop).is_file(), f"{stop} does not exist"
    for place, stop in enumerate(stops[1:], start=1):
        assert any(leads_to(earlier, stop) for earlier in stops[:place]), f"no earlier stop leads to {stop}"


def leads_to(earlier: str, stop: str) -> bool:
    """Python imports Python; a module uses a file of SQL when it names one of its queries."""
    if not earlier.endswith(".py"):
        return False
    if stop.endswith(".sql"):
        names = set(QUERY_NAME.findall((PACKAGE / stop).read_text(encoding="utf-8")))
        return bool(names & strings_in(earlier))
    imported = imports_of(earlier)
    # A package's own file re-exports: who imports the package gets what it imports.
    through = {
        name for one in modules() if one.name in imported and one.is_package for name in imports_of(one.path)
    }
    return module_at(stop).name in imported | through


def test_no_module_imports_itself_through_others() -> None:
    assert import_cycles() == []


def test_a_function_that_imports_lazily_closes_no_other_cycle_than_these() -> None:
    """A lazy import hides a cycle from Python, not from the reader. This list may only become shorter."""
    assert import_cycles(also_lazy=True) == [
        ["holdfast.api.methods", "holdfast.api.token_methods", "holdfast.api.tokens"],
    ]


def test_only_the_store_imports_a_database_driver() -> None:
    wrong = {
        (module.path, imported)
        for module in modules()
        for imported in imports_of(module.path)
        if imported.split(".")[0] in DATABASE_DRIVERS and module.part != "store"
    }

    assert wrong == set()


def test_only_the_wiring_names_a_backend() -> None:
    wrong = {
        (module.path, imported)
        for module in modules()
        for imported in imports_of(module.path)
        if BACKEND.fullmatch(imported) and module.part not in MAY_NAME_A_BACKEND
    }

    assert wrong == set()


def test_the_core_imports_only_itself_the_standard_library_and_msgspec() -> None:
    roots = {
        imported.split(".")[0]
        for module in modules()
        if module.part == "core"
        for imported in imports_of(module.path)
        if not imported.startswith("holdfast.core")
    }

    assert roots - sys.stdlib_module_names == {"msgspec"}


def test_nothing_stored_is_ever_executed() -> None:
    executing = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}
    wrong = {module.path for module in modules() if imports_of(module.path) & executing}

    assert wrong == set()


def test_every_package_has_its_layer() -> None:
    """import-linter checks the order; this names the place to edit."""
    layers = re.findall(r"\w+", (ROOT / ".importlinter").read_text(encoding="utf-8"))
    parts = {module.part for module in modules()} - {"holdfast"}

    assert parts <= set(layers), "add the new package to .importlinter"
