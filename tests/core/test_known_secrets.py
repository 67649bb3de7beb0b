"""A value that was kept as a secret is one in every thread, whatever it looks like."""

import contextvars
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import known_secrets as module
from holdfast.core.known_secrets import KnownSecrets, known_secrets, without_known_secrets
from holdfast.core.redaction import holds_secret, keep_secret, redact, redact_json, redact_text

HIDDEN = "[redacted:secret]"


def test_every_thread_and_every_context_knows_a_secret() -> None:
    workers = 120
    ready = threading.Barrier(workers)
    keep_secret("swordfish")

    def check(number: int) -> tuple[str, bytes, bool]:
        ready.wait()
        text = f"{number} said swordfish"
        encoded = msgspec.json.encode([text])
        return redact_text(text), redact_json(encoded), holds_secret(encoded)

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(check, range(workers)))

    assert found == [
        (f"{number} said {HIDDEN}", f'["{number} said {HIDDEN}"]'.encode(), True) for number in range(workers)
    ]
    assert contextvars.Context().run(redact_text, "swordfish") == HIDDEN


@pytest.mark.parametrize("already", [0, 100])
def test_no_secret_is_lost_when_threads_keep_and_check_at_once(already: int) -> None:
    workers, each = 16, 30
    ready = threading.Barrier(workers)
    for number in range(already):
        keep_secret(f"old-{number:04}")

    def keep_and_check(worker: int) -> list[str]:
        ready.wait()
        seen = []
        for number in range(each):
            value = f"new {worker:04} {number:04}"
            keep_secret(value)
            seen.append(redact_text(value))
        return seen

    with ThreadPoolExecutor(workers) as pool:
        seen = {text for texts in pool.map(keep_and_check, range(workers)) for text in texts}

    assert seen == {HIDDEN}
    assert len(known_secrets()) == already + workers * each


def test_an_index_that_was_made_too_late_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = KnownSecrets()
    secrets.keep("first-one")
    made = module._Index

    def slow(kept: tuple[str, ...], version: object) -> module._Index:
        monkeypatch.setattr(module, "_Index", made)
        secrets.keep("second-one")  # another thread, after the values were copied
        return made(kept, version)

    monkeypatch.setattr(module, "_Index", slow)
    secrets.values()

    assert secrets.conceal("second-one") == HIDDEN


def test_the_longest_is_replaced_first_and_short_ones_are_ignored() -> None:
    for value in ("abcd", "abcdefgh", "abc", "abcd"):
        keep_secret(value)

    assert known_secrets() == ("abcdefgh", "abcd")
    assert redact_text("abcdefgh abcd abc") == f"{HIDDEN} {HIDDEN} abc"


def test_the_oldest_are_dropped_beyond_the_limit_but_none_of_the_process_s_own() -> None:
    secrets = KnownSecrets(max_known=30)
    secrets.keep("its own token")
    for number in range(100):
        secrets.keep(f"value-{number:04}", is_own=False)
    # Found by a program first, and the process's own since.
    secrets.keep("value-0080")
    for number in range(100, 150):
        secrets.keep(f"value-{number:04}", is_own=False)

    kept = {f"value-{number:04}" for number in range(122, 150)}
    assert set(secrets.values()) == {"its own token", "value-0080", *kept}


@pytest.mark.parametrize("value", ["redacted", "secret", "[redacted:secret]", "cted:sec"])
def test_a_secret_that_is_a_part_of_a_marker_leaves_markers_as_they_are(value: str) -> None:
    keep_secret(value)

    once = redact_text(f"a {value} b [redacted:github]")

    assert redact_text(once) is once
    assert once == f"a {HIDDEN} b [redacted:github]"


@pytest.mark.parametrize("value", ["ключ-от-моря", 'a"b\\c', "half\udc80pair", "line\nline"])
def test_a_secret_is_found_as_any_encoder_writes_it(value: str) -> None:
    keep_secret(value)

    for spelling in (json.dumps(value), json.dumps(json.dumps(value)), value):
        assert HIDDEN in redact_text(f"<{spelling}>")
        assert holds_secret(f"<{spelling}>".encode("utf-8", "surrogatepass"))


def test_many_secrets_are_looked_for_in_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = KnownSecrets()
    for number in range(1000):
        secrets.keep(f"sess-{number:04}-{number * 7919:08}")
    candidates: list[int] = []
    look_up = module._Index._anchors_in

    def counting(index: module._Index, encoded: bytes) -> set[int]:
        found = look_up(index, encoded)
        candidates.append(len(found))
        return found

    monkeypatch.setattr(module._Index, "_anchors_in", counting)

    assert not secrets.are_in(b'{"answer":42,"words":["one","two","three"],"session":"sess-0001"}' * 2)
    assert secrets.are_in(b'{"was":"sess-0042-%08d"}' % (42 * 7919))
    assert len(candidates) == 2
    assert candidates[0] <= 10
    assert candidates[1] <= 10


def test_secrets_that_are_alike_cost_no_more_than_one() -> None:
    secrets = KnownSecrets()
    for number in range(1000):
        secrets.keep(f"known-{number:032x}")
    index = secrets._index()

    assert len(index._forms) == 1000
    assert [len(tried) for tried in index._anchors.values()] == [1]
    assert secrets.conceal(f"a known-{7:032x} b known-{1000:032x}") == f"a {HIDDEN} b known-{1000:032x}"


@pytest.mark.parametrize("count", [1, 20, 100])
def test_no_regex_is_made_while_texts_are_redacted(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for number in range(count):
        keep_secret(f"known-{number:04}")
    texts = [f"{number}: known-{number % count:04}" for number in range(1000)]
    redact(texts[:1])
    made: list[object] = []
    monkeypatch.setattr("re.compile", lambda *given: made.append(given))
    monkeypatch.setattr("re.sub", lambda *given: made.append(given))

    assert redact(texts) == [f"{number}: {HIDDEN}" for number in range(1000)]
    assert made == []


@pytest.mark.parametrize("others", [0, 30])
def test_of_secrets_that_overlap_the_first_is_replaced_and_else_the_longer(others: int) -> None:
    for value in ("abcdef", "defghi", "abcdefgh", "redacted", *(f"other-{one:03}" for one in range(others))):
        keep_secret(value)

    assert (
        redact_text("abcdefghi defghi [redacted:jwt] redacted")
        == f"{HIDDEN}i {HIDDEN} [redacted:jwt] {HIDDEN}"
    )


@given(st.lists(st.text(min_size=4, max_size=12), min_size=1, max_size=60), st.text(max_size=20))
def test_a_few_and_many_secrets_are_found_alike(values: list[str], around: str) -> None:
    many = KnownSecrets()
    for number in range(30):
        many.keep(f"\N{BLACK STAR}-{number:05}")
    for value in values:
        many.keep(value)
        few = KnownSecrets()
        few.keep(value)
        text = around + value + around
        for known in (few, many):
            assert known.are_in(text.encode("utf-8", "surrogatepass"))
            assert value not in re.sub(r"\[redacted:secret\]", "", known.conceal(text)) or value in HIDDEN


def test_a_long_text_is_searched_across_the_borders_of_its_pieces() -> None:
    for count in (1, 100):
        with without_known_secrets():
            for number in range(count):
                keep_secret(f"sword-fish-{number:03}")
            for place in range(module.PIECE - 16, module.PIECE + 4):
                assert redact_text("." * place + "sword-fish-000") == "." * place + HIDDEN


def test_what_a_test_keeps_is_forgotten_after_it() -> None:
    keep_secret("outside")
    with without_known_secrets():
        keep_secret("inside")
        assert known_secrets() == ("inside",)

    assert known_secrets() == ("outside",)
