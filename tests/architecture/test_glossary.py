"""One word, one meaning: the words we do not use are not among the names we choose."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.core.transitions import MOVES
from tests.architecture.schema import read_tables
from tests.architecture.source import DOCS, PACKAGE, ROOT, Name, declared_names, modules, tree_of

GLOSSARY = DOCS / "glossary.md"
WORD = re.compile(r"^\| \*\*(.+?)\*\* \|", re.MULTILINE)
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
UNUSED = re.compile(r"^\| \*(\w+)\* \|", re.MULTILINE)
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# Names that hold an unused word for a good reason, each with it.
ALLOWED = {
    ("core/step.py", "ArtifactState"): "not a status: whether a file is as a step left it",
    ("core/checkpoint.py", "state"): "the same, as a field of the report on an artifact",
    ("core/manifest.py", "job_id"): "a field of the manifest, as the seed has it",
    ("core/manifest.py", "job_name"): "a field of the manifest, as the seed has it",
    ("engine/client/flows.py", "state"): "the state document of a flow, as the seed calls it",
    ("engine/client/flows.py", "state_of"): "the same",
    ("engine/ledger/flows.py", "state"): "the same",
    ("engine/client/owner_flows.py", "state"): "the same",
    ("api/flow_changes.py", "state"): "the same",
    ("api/flows.py", "read_state"): "the same",
    ("api/flow_methods.py", "_state"): "the same",
    ("views/flows.py", "state"): "the same",
    ("views/flows.py", "FlowStateView"): "the same",
    ("engine/client/campaigns.py", "recovery_state"): "what the seed calls the document",
    ("engine/campaigns/recovery_document.py", "state_snapshot"): "a column, as the seed has it",
    ("cli/projections.py", "state"): "the command of the folder that the seed calls so",
    ("progress/snapshots.py", "analysis_state"): "a key of a snapshot, as the seed has it",
    ("progress/snapshots.py", "migration_state"): "the same",
    ("progress/snapshots.py", "agent_state"): "the same",
    ("config/sections.py", "workflows"): "the section of the settings, as the seed calls it",
    ("views/wire.py", "state"): "a field of OpenClaw's protocol",
    ("api/protocols.py", "data_received"): "what asyncio calls a method of its protocols",
    ("api/protocols.py", "data"): "what asyncio calls the parameter of that method",
    ("tests/architecture/module_state.py", "module_state"): "what a module remembers, the usual word for it",
    ("tests/architecture/test_module_state.py", "test_module_state"): "the same",
    (
        "tests/doors/test_state_files.py",
        "test_state_files",
    ): "the folder that the seed calls state",
    ("integrations/pydantic_ai.py", "event_stream_handler"): "what pydantic-ai calls its own parameter",
}

# Past participles that do not end in -ed.
IRREGULAR = {"began", "begun", "done", "forgotten", "found", "said", "sent"}
# Names that are whole clauses, because a program reads them as answers: the effect did not happen.
CLAUSES = {"CannotTell", "DidNotHappen"}


def words_in(*sections: str) -> set[str]:
    """The words that these sections of the page explain."""
    page = GLOSSARY.read_text(encoding="utf-8")
    return {
        word for one in sections for word in WORD.findall(page.split(f"\n## {one}\n")[1].split("\n## ")[0])
    }


def forms_of(word: str) -> set[str]:
    """The word, and what may be its singular."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), f"{word.removesuffix('ies')}y"}


def nouns() -> dict[str, set[str]]:
    """The last words of the names of classes, with the classes. Exceptions are named for what happened, and a
    private class is known to one module only: they need no noun."""
    bases: dict[str, set[str]] = {}
    for module in modules():
        for node in ast.walk(tree_of(module.path)):
            if isinstance(node, ast.ClassDef):
                named = {re.split(r"\W", ast.unparse(base).partition("[")[0])[-1] for base in node.bases}
                bases.setdefault(node.name, set()).update(named - {node.name})
    found: dict[str, set[str]] = {}
    for name in bases:
        if not name.startswith("_") and name not in CLAUSES and not _is_exception(name, bases):
            found.setdefault(words_of(name)[-1], set()).add(name)
    return found


def _is_exception(name: str, bases: dict[str, set[str]]) -> bool:
    return any(
        base.endswith(("Error", "Exception")) or _is_exception(base, bases) for base in bases.get(name, ())
    )


def is_participle(word: str) -> bool:
    """`rescued` says what happened; `seed` and `feed` are things."""
    return word in IRREGULAR or (word.endswith("ed") and not word.endswith("eed"))


def unused_words() -> set[str]:
    page = GLOSSARY.read_text(encoding="utf-8")
    return set(UNUSED.findall(page.split("## Words we do not use")[1]))


def words_of(name: str) -> list[str]:
    """`TaskManager` and `task_managers` both hold the word `manager`."""
    return [piece.lower() for piece in PIECE.findall(name)]


def is_unused(word: str, unused: set[str]) -> bool:
    return word in unused or (word.endswith("s") and word[:-1] in unused)


def offences(name: Name, unused: set[str]) -> Iterator[str]:
    for place, word in enumerate(words_of(name.text)):
        if not is_unused(word, unused) or (name.where, name.text) in ALLOWED:
            continue
        if word.startswith("handler") and "signal" in name.where:
            continue  # what Python itself calls a handler
        if word.startswith("process") and (name.kind != "function" or place > 0):
            continue  # only the verb is unused; a process of the machine has no other name
        if word == "recover" and name.where == "gateway/recovery.py":
            continue  # what recovery itself does
        yield f"{name}: {word!r}"


def test_the_page_has_words_and_unused_words() -> None:
    words = set(WORD.findall(GLOSSARY.read_text(encoding="utf-8")))

    assert {"task", "run", "step", "checkpoint", "claim", "fence", "door"} <= words
    assert {"job", "manager", "util", "data"} <= unused_words()
    assert words & unused_words() == set()


def test_every_noun_with_a_status_is_a_word_of_the_glossary() -> None:
    assert set(MOVES) <= set(WORD.findall(GLOSSARY.read_text(encoding="utf-8")))


def test_no_name_in_the_package_holds_a_word_that_we_do_not_use() -> None:
    unused = unused_words()
    found = [offence for name in declared_names() for offence in offences(name, unused)]

    assert found == []


def test_every_folder_of_the_package_is_in_the_glossary() -> None:
    words = words_in("Words", "Folders")
    known = words | {form for word in words for form in (f"{word}s", f"{word[:-1]}ies")}
    folders = {path.parent.name for path in PACKAGE.rglob("*.py")} | {
        path.parent.name for path in PACKAGE.rglob("*.sql")
    }

    # The glossary's list of unused words has `common` with its one exception; `holdfast` is the package.
    assert folders - known - {"common", "holdfast"} == set()


def test_the_noun_of_every_class_is_in_the_glossary() -> None:
    known = {form for word in words_in("Words", "Nouns of classes") for form in forms_of(word)}
    # The last table explains where a word that we otherwise avoid is right; another test looks at that.
    known |= unused_words()
    unknown = {
        noun: classes
        for noun, classes in nouns().items()
        if not forms_of(noun) & known and not is_participle(noun)
    }

    assert unknown == {}, "explain the noun in docs/glossary.md, or name the class by a noun that is there"


def test_every_noun_in_the_glossary_is_used_by_a_class_and_explained_once() -> None:
    listed = words_in("Nouns of classes")
    used = {form for noun in nouns() for form in forms_of(noun)}

    assert {noun for noun in listed if not forms_of(noun) & used} == set(), "no class has this noun any more"
    assert listed & words_in("Words") == set()


@pytest.mark.parametrize(
    ("word", "expected"), [("rescued", True), ("sent", True), ("seed", False), ("view", False)]
)
def test_a_participle_is_told_from_a_noun(word: str, *, expected: bool) -> None:
    assert is_participle(word) is expected


def doubles_in(section: str) -> list[str]:
    return [word for word, times in Counter(WORD.findall(section)).items() if times > 1]


def test_every_word_is_explained_once_in_each_table() -> None:
    page = GLOSSARY.read_text(encoding="utf-8")
    doubled = {section.partition("\n")[0]: doubles_in(section) for section in page.split("\n## ")[1:]}

    assert {section: words for section, words in doubled.items() if words} == {}


def test_no_two_modules_define_a_class_of_the_same_name() -> None:
    """A reader who sees a name in an import or a traceback knows which thing is meant."""
    places: dict[str, set[str]] = {}
    for name in declared_names():
        if name.kind == "class" and not name.text.startswith("_"):
            places.setdefault(name.text, set()).add(name.where)

    assert {text: where for text, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_no_table_and_no_column_holds_a_word_that_we_do_not_use(dialect: str) -> None:
    unused = unused_words()
    names = [
        Name(text=text, kind="column" if column else "table", where=dialect)
        for table in read_tables(dialect)
        for column, text in [(False, table.name), *((True, one) for one in table.columns)]
    ]

    assert [offence for name in names for offence in offences(name, unused)] == []


def test_no_file_of_sql_is_named_by_a_word_that_we_do_not_use() -> None:
    unused = unused_words()
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.sql")]
    wrong = [path for path in files for word in words_of(path.stem) if is_unused(word, unused)]

    assert wrong == []


def names_in_tests() -> Iterator[Name]:
    """The folders, the modules and the classes; parameters and variables of tests may have any name."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        yield Name(text=path.parent.name, kind="folder", where=where)
        yield Name(text=path.stem, kind="module", where=where)
        for name in CLASS.findall(path.read_text(encoding="utf-8")):
            yield Name(text=name, kind="class", where=where)


def test_no_folder_module_or_class_of_the_tests_holds_a_word_that_we_do_not_use() -> None:
    unused = unused_words()

    assert [offence for name in names_in_tests() for offence in offences(name, unused)] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (Name(text="TaskManager", kind="class", where="x.py"), True),
        (Name(text="jobs", kind="parameter", where="x.py"), True),
        (Name(text="process_message", kind="function", where="x.py"), True),
        (Name(text="recover_run", kind="function", where="engine/recovery/resume.py"), True),
        (Name(text="metadata", kind="parameter", where="x.py"), False),
        (Name(text="process", kind="parameter", where="x.py"), False),
        (Name(text="signal_handler", kind="function", where="gateway/signals.py"), False),
        (Name(text="claim_next_run", kind="function", where="x.py"), False),
    ],
    ids=lambda value: str(value),
)
def test_the_search_finds_words_and_not_parts_of_words(name: Name, *, expected: bool) -> None:
    assert bool(list(offences(name, unused_words()))) is expected
