"""What is sealed: everything that redaction would remove, and more; ordinary data is not."""

import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import secret_scanner
from holdfast.core.known_secrets import PIECE
from holdfast.core.redaction import holds_secret, keep_secret, redact_json
from holdfast.core.secret_shapes import CURL_FLAG
from tests.canaries import SURROUNDED
from tests.core.test_redaction import BENIGN, documents, mixed
from tests.fake_secrets import NAMES, SECRETS, SHORT, letters

encode = msgspec.json.encode


def as_text(document: object) -> str:
    return encode(document).decode()


PLANTED = [*SECRETS, *(sentence.format(secret) for _, sentence, secret in SURROUNDED)]
PLACES: dict[str, Callable[[str], object]] = {
    "value": lambda secret: {"a": {"b": secret}},
    "key": lambda secret: {secret: 1},
    "list": lambda secret: [1, None, [secret]],
    "beside unicode": lambda secret: f"é{secret}😀",
    "after a line": lambda secret: f"first\n{secret}\n\tlast",
    "json": lambda secret: as_text({"a": secret}),
    "json in json": lambda secret: as_text([as_text({"a": [secret]})]),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_shape_is_found_wherever_it_stands(place: str) -> None:
    missed = [secret for secret in PLANTED if not holds_secret(encode(PLACES[place](secret)))]

    assert missed == []


of_commands = st.sampled_from(
    [
        *NAMES,
        "sshpass",
        "curl",
        "mysql",
        "mysqldump",
        "docker",
        "login",
        "podman",
        "-p",
        "-px",
        "--token",
        "--pw",
        "-u",
        "-su",
        "--user",
        "bob:x",
        "corp/bob:x",
        "my-user:x",
        "my user:x",
        "my\tuser:x",
        "a,b:x",
        'a"b:x',
        "\n:x",
        "é:x",
        "--user=bob:x",
        "-sSubob:x",
        "-u-",
        "-u/:x",
        "pass",
        "pw",
        "PASS",
        "=x",
        ":",
        "=",
        '"',
        "'",
        "\\n",
        "\n",
        "-----BEGIN PRIVATE" + " KEY-----",
        "MIIE",
        "-----END PRIVATE" + " KEY-----",
    ]
)


@given(st.lists(of_commands, max_size=6))
def test_whatever_redaction_changes_in_a_command_is_found(command: list[str]) -> None:
    for document in (command, " ".join(command), "".join(command), as_text(command)):
        encoded = encode(document)

        assert holds_secret(encoded) or redact_json(encoded) is encoded


@given(documents(mixed | of_commands))
def test_whatever_redaction_changes_is_found(document: object) -> None:
    encoded = encode(document)

    assert holds_secret(encoded) or redact_json(encoded) is encoded


@given(documents(mixed | st.sampled_from(NAMES)))
def test_whatever_redaction_changes_is_found_in_json_inside_json(document: object) -> None:
    encoded = encode({"said": as_text(document)})

    assert holds_secret(encoded) or redact_json(encoded) is encoded


@given(documents(st.text(max_size=8)), st.sampled_from(PLANTED), st.sampled_from(list(PLACES)))
def test_every_shape_is_found_in_any_document(document: object, secret: str, place: str) -> None:
    assert holds_secret(encode([document, PLACES[place](secret), document]))


@pytest.mark.parametrize("value", ["x", "hunter", SHORT, "two words", ""])
@pytest.mark.parametrize("depth", range(4))
def test_the_value_of_a_key_that_names_a_secret_is_found_at_any_depth(value: str, depth: int) -> None:
    missed = []
    for name in [*NAMES, "apiKey", "dbPassword", "botToken", "X-Api-Key"]:
        document: object = {name: value}
        for _ in range(depth):
            document = {"said": as_text(document)}
        if not holds_secret(encode(document)):
            missed.append(name)

    assert missed == []


ORDINARY = [
    {"answer": 42, "words": ["one", "two", "three"], "at": "2024-05-06T07:08:09.123456Z", "ok": True},
    {"email": "bob@example.org", "to": ["ann@example.org"], "cc": "Bob <bob@example.org>"},
    {
        "remote": "git@example.org:a/b.git",
        "url": "ssh://git@example.org:22/a.git",
        "port": "http://[::1]:8080/",
    },
    {"page": "https://example.org:8080/a/@scope/b?email=bob@example.org&sort=key#x"},
    {"usage": {"input_tokens": 1200, "output_tokens": 53, "max_tokens": 8192, "token_count": 53}},
    {"text": "The token limit is 8192. A token of love; tokens are cheap."},
    {"code": "@pytest.fixture\ndef test_passed(monkeypatch): return keyboard[key]"},
    {"id": "task_01j8zc3v5k7m9p2q4r6s8t0w1x", "run": "550e8400-e29b-41d4-a716-446655440000"},
    {
        "dedup_key": "abc",
        "session_key": "agent:main:main",
        "key": "value",
        "sha": letters(40, "0123456789abcdef"),
    },
    {"compass": "north", "passed": 12, "bypass": False, "test_passed": True},
    {"sql": "BEGIN IMMEDIATE; COMMIT;", "cmd": "ls -u; id -u; docker run -it image"},
    {"prose": "Bearers of news; the author's organisation; monkeys and turkeys; a mask_of_words"},
]


@pytest.mark.parametrize("document", ORDINARY)
def test_ordinary_data_is_not_sealed(document: object) -> None:
    assert not holds_secret(encode(document))


@pytest.mark.parametrize("place", range(PIECE - 60, PIECE + 10, 7))
def test_a_secret_on_the_border_of_two_pieces_is_found(place: int) -> None:
    before, after = "," * place, "," * PIECE
    missed = [secret for secret in PLANTED[::5] if not holds_secret(encode(f"{before} {secret} {after}"))]

    assert missed == []


def test_no_search_takes_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    class Counting:
        def __init__(self, regex: re.Pattern[bytes]) -> None:
            self._regex = regex

        def search(self, encoded: bytes, begin: int = 0, end: int = 2**62) -> re.Match[bytes] | None:
            searched.append(min(end, len(encoded)) - begin)
            return self._regex.search(encoded, begin, end)

    counting = Counting(secret_scanner._HINTS())
    monkeypatch.setattr(secret_scanner, "_HINTS", lambda: counting)
    length = 1_000_000

    assert not holds_secret(b"," * length)
    assert max(searched) < 2 * PIECE
    assert sum(searched) < 1.1 * length


@pytest.mark.parametrize("unit", ["-u", "--user", "-su", "--proxy-user", "-ua", "-u-", "-u/", "-Su,"])
def test_flags_of_curl_in_a_row_are_each_looked_at_once(unit: str) -> None:
    # As far as a user may reach from each flag; all of them together are the steps of the search.
    users = [
        re.compile(f"-{CURL_FLAG}({user})") for user in (secret_scanner._USER, secret_scanner._QUOTED_USER)
    ]
    text = unit * 2000

    for user in users:
        reached = [found.end() - begin for begin in range(len(text)) if (found := user.match(text, begin))]
        assert sum(reached) <= 3 * len(text)


@pytest.mark.parametrize(
    "document",
    [
        "PASS=x",
        "pass: x",
        {"pw": "x"},
        {"a": "{'pass': 'x'}"},
        "mysql -px",
        ["mysql", "-px"],
        "docker login -p x",
        ["docker", "login", "-p", "x"],
        "echo h:5432:d:u:x > ~/.pgpass",
        ["curl", "-u", "corp/bob:x"],
        "DAPI" + "0123456789ABCDEF" * 2,
        "https://a.example.org/api?code=" + "abcdefgh" * 2,
        "my --pw x",
    ],
)
def test_what_may_be_a_password_is_sealed(document: object) -> None:
    assert holds_secret(encode(document))
    assert holds_secret(encode({"said": as_text(document)}))


def test_text_that_redaction_leaves_alone_may_be_sealed_all_the_same() -> None:
    # Not a promise about each: only that the search is not the same as redaction.
    assert any(holds_secret(encode(text)) for text in BENIGN)


@pytest.mark.parametrize(
    "value", ["12345", "correct horse", 'quo"te', "back\\slash", "é" * 5, "line\nline", "/a/b"]
)
@pytest.mark.parametrize("place", PLACES)
def test_a_known_secret_is_found_in_its_json_form(place: str, value: str) -> None:
    encoded = encode(PLACES[place](value))
    assert not holds_secret(encoded)

    keep_secret(value)

    assert holds_secret(encoded)
    assert b"[redacted:secret]" in redact_json(encoded)
