"""One word, one meaning: the words we do not use are not among the names we choose."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from holdfast.core.transitions import MOVES
from tests.architecture.schema import read_tables
from tests.architecture.source import DOCS, PACKAGE, Name, declared_names

GLOSSARY = DOCS / "glossary.md"
WORD = re.compile(r"^\| \*\*(.+?)\*\* \|", re.MULTILINE)
UNUSED = re.compile(r"^\| \*(\w+)\* \|", re.MULTILINE)
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# Names that hold an unused word for a good reason, each with it.
ALLOWED = {
    ("core/step.py", "ArtifactState"): "not a status: whether a file is as a step left it",
    ("core/checkpoint.py", "state"): "the same, as a field of the report on an artifact",
    ("core/manifest.py", "job_id"): "a field of the manifest, as the seed has it",
    ("core/manifest.py", "job_name"): "a field of the manifest, as the seed has it",
    ("views/wire.py", "state"): "a field of OpenClaw's protocol",
    ("api/protocols.py", "data_received"): "what asyncio calls a method of its protocols",
    ("api/protocols.py", "data"): "what asyncio calls the parameter of that method",
    ("integrations/pydantic_ai.py", "event_stream_handler"): "what pydantic-ai calls its own parameter",
}


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
    words = set(WORD.findall(GLOSSARY.read_text(encoding="utf-8")))
    known = words | {form for word in words for form in (f"{word}s", f"{word[:-1]}ies")}
    folders = {path.parent.name for path in PACKAGE.rglob("*.py")} | {
        path.parent.name for path in PACKAGE.rglob("*.sql")
    }

    # The glossary's list of unused words has `common` with its one exception; `holdfast` is the package.
    assert folders - known - {"common", "holdfast"} == set()


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
