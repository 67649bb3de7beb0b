"""Secrets of every shape that the scanner knows, planted by tests that then look for them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator

import msgspec

from tests import fake_secrets
from tests.fake_secrets import SHAPE_CASES, letters

# Secrets that are known by what stands around them: those of tests/fake_secrets.py, and more.
SURROUNDED = [
    *fake_secrets.SURROUNDED,
    ("curl", "curl -sSu bob:{} https://example.org", "swordfish"),
    ("curl", "curl -sSubob:{} https://example.org", "swordfish"),
    ("curl", "curl -u corp/bob:{} https://example.org", "swordfish"),
    ("curl", "curl -u me@example.org/banana:{}", "swordfish"),
    ("curl", "curl -u my-user:{}", "swordfish"),
    ("curl", "curl -u 'a,b:{}' https://example.org", "correct horse"),
    ("curl", "curl -u bob:'{}' https://example.org", "correct horse"),
    ("curl", '["curl", "-su", "bob:{}"]', "correct horse"),
    ("curl", r"{{\"run\":[\"curl\",\"-u\",\"bob:{}\"]}}", "swordfish"),
    ("curl", r"curl --user \\\\\\\"bob:{}\\\\\\\" x", "swordfish"),
    ("sshpass", "sshpass -v -p {} ssh bob@example.org", "swordfish"),
    ("sshpass", '["sshpass","-p","{}","ssh"]', "correct horse"),
    ("sshpass", r"[\"sshpass\",\"-v\",\"-p\",\"{}\"]", "swordfish"),
    ("command", "mysql -p{} shop", "swordfish"),
    ("command", "mysqldump -u root -h db -p'{}' shop", "correct horse"),
    ("command", '["mysql", "-u", "root", "-p{}"]', "swordfish"),
    ("command", "docker login -p {} example.org", "swordfish"),
    ("command", "podman login example.org -u bob -p '{}'", "correct horse"),
    ("command", '["docker","login","-u","bob","-p","{}"]', "correct horse"),
    ("yaml", "- password: >-\n    {}\nuser: bob", "swordfish"),
    ("yaml", "db:\n  password: |\n    {}\n  port: 1", "swordfish\n    and more"),
    ("yaml", "password:\n  {}\nuser: bob", "swordfish"),
    ("yaml", r'{{"doc": "a: b\nsecret: |\n  {}\nc: d"}}', "swordfish"),
    ("netrc", "machine example.org login bob password {}", "swordfish"),
    ("netrc", "machine example.org\n  login bob\n  password {}\n", "swordfish"),
    ("xml", "<password>{}</password>", "correct horse"),
    ("xml", '<db:dbPassword kind="x">{}</db:dbPassword>', "swordfish"),
    ("url-user", "clone https://{}@example.org/a.git", "a1" + letters(38)),
    ("url-user", "clone https://{}:[redacted:url]@example.org/a.git", "a1" + letters(38)),
    ("url-key", "GET https://a.example.org/api/run?code={}", "k1" + letters(40) + "=="),
    ("flag", "mysql --user bob --password {}", "hunterpw"),
    ("flag", "run --password {} --now", "swordfish"),
    ("flag", "run --password {}", "12345678"),
    ("assignment", "password: {}", "12345678"),
    ("assignment", r'{{"doc": "a: b\npassword: {}\nc: d"}}', "swordfish"),
    ("assignment", r'{{"doc": "password: {}\nc: d"}}', "swordfish"),
    ("assignment", r"{{\"doc\": \"a: b\\npassword: {}\"}}", "swordfish"),
    ("assignment", r"\\\\\\\"access_token\\\\\\\": \\\\\\\"{}\\\\\\\"", letters(20)),
    ("assignment", "PASS={}\nls", "swordfish"),
    ("assignment", "mail.pass={}", "swordfish"),
    ("assignment", "user: bob\npass: {}\n", "hunter2"),
    ("assignment", "{{'pw': '{}'}}", "swordfish"),
    ("assignment", "pw={} user=bob", "swordfish"),
    ("databricks", "x {} y", "DAPI" + letters(32, "0123456789ABCDEF")),
]

# Names that tell that what stands beside them is a secret, whatever it looks like.
NAMES = ("password", "secret", "api_key", "client_secret", "access_token", "passphrase")
# What is shorter stands in ordinary bytes by chance.
_SHORTEST = 6
# Of a secret that is longer than this, no part of the length of a window may be read.
_LONG = 16
_WINDOW = 12
_RUN = re.compile(rb"[A-Za-z0-9+/]{%d,}" % _WINDOW)


_SHARED = {"swordfish", "correct horse"}


class Canary(msgspec.Struct, frozen=True):
    """One secret, and a value of a program that holds it."""

    shape: str
    value: object
    secret: str


def _all() -> Iterator[Canary]:
    for shape, secret in SHAPE_CASES:
        yield Canary(shape, f"use {secret} for it", secret)
        yield Canary(shape, secret, secret)
    # Of each pattern that is not among the fake secrets, one is enough: large values are stored elsewhere.
    more = {case[0]: case for case in reversed(SURROUNDED)}
    fake_shapes = {shape for shape, _, _ in fake_secrets.SURROUNDED}
    others = [case for shape, case in more.items() if shape not in fake_shapes]
    for number, (shape, sentence, secret) in enumerate([*fake_secrets.SURROUNDED, *others]):
        if len(secret) >= _SHORTEST:
            # Its own for each, so that it tells which shape was found.
            own = f"{secret}{number}" if secret in _SHARED else secret
            yield Canary(shape, sentence.format(own), own)
    for number, name in enumerate(NAMES):
        # Letters only, so that nothing but the name tells what it is.
        plain = f"quiet harbour wall {'abcdefghij'[number] * 3}"
        yield Canary(f"by the name {name}", {name: plain}, plain)
        yield Canary(f"by the name {name}", {"a": [{"b": {f"my_{name}": plain}}]}, plain)


# One of each shape, and more.
CANARIES = tuple(_all())
VALUES: list[object] = [canary.value for canary in CANARIES]


def _whole(secret: str) -> Iterator[bytes]:
    """Itself, and as it stands in JSON, and in JSON that stands in JSON."""
    yield secret.encode()
    for _ in range(2):
        secret = msgspec.json.encode(secret).decode()[1:-1]
        yield secret.encode()


def _windows(secret: str) -> Iterator[bytes]:
    """Every part of it that is long enough to be of use to a thief: as it is, as hex, as base64."""
    # What all secrets of a kind begin with is no secret.
    randoms = [run for run in _RUN.findall(secret.encode()) if len(secret) > _LONG]
    for random in randoms:
        # Wherever it begins in what was encoded; the first and the last letters depend on what is around it.
        in_base64 = [base64.b64encode(b"\0" * shift + random)[4:-4] for shift in range(3)]
        for form in (random, random.hex().encode(), random.hex().upper().encode(), *in_base64):
            for start in range(len(form) - _WINDOW + 1):
                yield form[start : start + _WINDOW]


_WHOLE = {form: canary.shape for canary in CANARIES for form in _whole(canary.secret)}
_WINDOWS = {window: canary.shape for canary in CANARIES for window in _windows(canary.secret)}


def found_in(*contents: bytes) -> set[str]:
    """The shapes of which something can be read there."""
    found = {shape for content in contents for form, shape in _WHOLE.items() if form in content}
    for content in contents:
        for run in set(_RUN.findall(content)):
            parts = (run[start : start + _WINDOW] for start in range(len(run) - _WINDOW + 1))
            found |= {_WINDOWS[part] for part in parts if part in _WINDOWS}
    return found


def found_in_rows(tables: dict[str, list[tuple[object, ...]]]) -> set[str]:
    """The same, with the table and the number of the column."""
    return {
        f"{table}, column {number}: {shape}"
        for table, rows in tables.items()
        for row in rows
        for number, cell in enumerate(row)
        for shape in found_in(*_bytes_of(cell))
    }


def _bytes_of(cell: object) -> Iterable[bytes]:
    if isinstance(cell, (bytes, bytearray, memoryview)):
        return (bytes(cell),)
    return (str(cell).encode("utf-8", "surrogateescape"),)
