"""Removes secrets from what people read, and leaves the rest readable.

The cost depends on the length of the input alone, not on the number of strings in it: short strings are
searched together, as the lines of one text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice, repeat
from operator import is_not

import msgspec

from holdfast.core.known_secrets import (
    conceal_known,
    holds_own,
    keep_secret,
    known_secrets,
    without_known_secrets,
)
from holdfast.core.patterns import compiled_late
from holdfast.core.secret_scanner import has_hint, holds_secret
from holdfast.core.secret_shapes import CURL_FLAG, PATTERNS, SecretPattern, compiled, is_plain, key_name

__all__ = [
    "PATTERNS",
    "REDACT_OFF_LOOP_BYTES",
    "SecretPattern",
    "hide_name",
    "holds_secret",
    "keep_secret",
    "known_secrets",
    "redact",
    "redact_code_name",
    "redact_json",
    "redact_name",
    "redact_text",
    "without_known_secrets",
]

_Conceal = Callable[[str], str]

# Redaction of more than this may block an event loop for too long.
REDACT_OFF_LOOP_BYTES = 16 * 1024
# How much is searched at once, in whole lines: between two blocks other threads can run.
_BLOCK = 8 * 1024
_NAME_BYTES = 8
# A number of at most three digits is not a PIN.
_NO_PIN = 999
_HIDDEN_NAME = compiled_late(rf"\[redacted:name\]~[0-9a-f]{{{2 * _NAME_BYTES}}}")
_REFERENCE = compiled_late(r"[A-Z][A-Z0-9_]{0,99}")
# These are compiled on first use: few texts are commands, and the start of a process is short.
# A user and a password for curl, as the value of a flag or in one word with it, as the scanner finds them.
_FLAG_OF_CURL = f"-{CURL_FLAG}"
_USER_OF_CURL = r"[^:\"'\\\x00-\x1f]{0,64}:(?!//)"
_PAIR_OF_CURL = rf"(?s:{_USER_OF_CURL}\S.*)"
_WORD_OF_CURL = rf"(?s:(-{CURL_FLAG}=?{_USER_OF_CURL})(\S.*))"
_MYSQL = "mysql[a-z]{0,6}"
_P_FLAG = r"(?s:(-p)(.+))"
# A line of a private key that is a list item by itself.
_LINE_OF_KEY = r"\s*+|[A-Za-z0-9+/=\s]++|[A-Za-z-]{1,24}: .{0,100}|-----END [A-Z0-9 ]{0,60}-----\s*+"
_OVER_LINES = tuple(pattern for pattern in PATTERNS if pattern.spans_lines)
_IN_A_LINE = tuple(pattern for pattern in PATTERNS if not pattern.spans_lines)


def redact_text(text: str) -> str:
    """Replaces every secret by `[redacted:<pattern>]`; returns the same object if there is none.

    On an event loop, use `asyncio.to_thread` for text longer than REDACT_OFF_LOOP_BYTES.
    """
    redacted = _redact_shapes(conceal_known(text))
    return text if redacted == text else redacted


def _redact_shapes(text: str) -> str:
    """Redacts by shape alone, not by the known values."""
    if not _has_hint(text):
        return text
    return "".join(map(_redact_block, _blocks(_redact_over_lines(text))))


def redact_json(encoded: bytes) -> bytes:
    """Redacts a JSON document; returns the same object, after a single search, if it holds no secret.

    On an event loop, use `asyncio.to_thread` for documents longer than REDACT_OFF_LOOP_BYTES.
    """
    if not holds_secret(encoded):
        return encoded
    value = msgspec.json.decode(encoded)
    redacted = redact(value)
    return encoded if redacted is value else msgspec.json.encode(redacted)


def redact_name(text: str) -> str:
    """A name, a key or an id as it is stored: unchanged, or `hide_name` of it if it holds a secret.

    Names are compared, so a name that holds a secret is replaced as a whole, by text that depends only on the
    name. A name therefore has exactly two forms, whatever secrets a process knows and whatever a later
    release detects. A secret that `hf.secret` found does not count: it is unknown after a restart.
    """
    if _HIDDEN_NAME().fullmatch(text):
        return text
    return hide_name(text) if holds_own(text) or _redact_shapes(text) != text else text


def redact_code_name(text: str) -> str:
    """The same for names from code, such as a task's; the process's own secrets do not count in them."""
    if _HIDDEN_NAME().fullmatch(text) or _redact_shapes(text) == text:
        return text
    return hide_name(text)


def hide_name(text: str) -> str:
    """The replacement of a name that holds a secret. Different names have different replacements."""
    digest = hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=_NAME_BYTES, person=b"holdfast-name"
    )
    return f"[redacted:name]~{digest.hexdigest()}"


def redact(value: object) -> object:
    """Redacts strings, keys and named values; returns the same object if there is no secret.

    On an event loop, use `asyncio.to_thread` if the JSON is longer than REDACT_OFF_LOOP_BYTES.
    """
    if isinstance(value, str):
        return redact_text(value)
    texts: dict[str, None] = {}
    _collect(value, texts)
    redaction = _Redaction(_changes(texts))
    return redaction.walk(value, redaction.show)


def _has_hint(text: str) -> bool:
    return has_hint(text.encode("utf-8", "surrogatepass"))


def _redact_over_lines(text: str) -> str:
    for pattern in _OVER_LINES:
        if pattern.may_find(text):
            text = pattern.redact(text)
    return text


def _blocks(text: str) -> Iterator[str]:
    """The text in blocks of whole lines. A line that is longer than a block is a block by itself."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + _BLOCK) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _redact_block(block: str) -> str:
    if _has_hint(block):
        for pattern in _IN_A_LINE:
            if pattern.may_find(block):
                block = pattern.redact(block)
    return block


def _collect(value: object, texts: dict[str, None]) -> None:
    """Adds each string of the structure to the texts, once."""
    match value:
        case str():
            texts[value] = None
        case list() | tuple():
            for item in value:
                _collect(item, texts)
        case dict():
            for key, item in value.items():
                _collect(key, texts)
                _collect(item, texts)


def _changes(texts: Iterable[str]) -> dict[str, str]:
    """Each text that holds a secret, with its redacted form."""
    changes: dict[str, str] = {}
    for group in _groups(texts):
        joined = "\n".join(group)
        concealed = group if conceal_known(joined) is joined else list(map(conceal_known, group))
        if concealed is group and not _has_hint(joined):
            continue
        # Patterns that span lines must not match across two texts that are only neighbours here.
        parts = list(map(_redact_over_lines, concealed))
        lines = iter("".join(map(_redact_block, _blocks("\n".join(parts)))).split("\n"))
        for text, part in zip(group, parts, strict=True):
            redacted = "\n".join(islice(lines, part.count("\n") + 1))
            if redacted != text:
                changes[text] = redacted
    return changes


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text) + 1
        if size > _BLOCK:
            yield group
            group, size = [], 0
    yield group


class _Redaction:
    """One pass over a structure whose texts have been searched."""

    __slots__ = ("_changes",)

    def __init__(self, changes: dict[str, str]) -> None:
        self._changes = changes

    def show(self, text: str) -> str:
        return self._changes.get(text, text)

    def walk(self, value: object, conceal: _Conceal) -> object:
        match value:
            case str():
                return conceal(value)
            case list() | tuple():
                items = list(map(self.walk, value, self._of_items(value, conceal)))
                if not any(map(is_not, items, value)):
                    return value
                return items if isinstance(value, list) else tuple(items)
            case dict():
                keys = self._keys(value)
                items = list(map(self.walk, value.values(), self._of_values(value, conceal)))
                if not any(map(is_not, keys, value)) and not any(map(is_not, items, value.values())):
                    return value
                return dict(zip(keys, items, strict=True))
            case int() if conceal == self._password and abs(value) > _NO_PIN:
                return "[redacted:assignment]"
            case _:
                return value

    def _of_items(self, value: list[object] | tuple[object, ...], conceal: _Conceal) -> Iterable[_Conceal]:
        """In a command that is a list, the item after `--api-key` is its value; one may hold a password."""
        if not any(isinstance(one, str) and one.startswith("-") for one in value):
            return repeat(conceal)
        command = _Command(value)
        concealments: list[_Conceal] = []
        before: object = None
        is_in_key = False
        for one in value:
            is_flag = isinstance(one, str) and one.startswith("-")
            is_in_key = (
                is_in_key and isinstance(one, str) and compiled(_LINE_OF_KEY).fullmatch(one) is not None
            )
            if is_in_key:
                concealments.append(self._line_of_key)
            elif isinstance(one, str) and command.without_password(one) != one:
                concealments.append(self._word_of(command, conceal))
            elif isinstance(before, str) and not is_flag and command.names_secret(before, one):
                concealments.append(self._value_of_flag)
            else:
                concealments.append(conceal)
            is_in_key |= is_flag and str(one).startswith("-----BEGIN ") and "PRIVATE KEY" in str(one)
            is_in_key &= "-----END" not in str(one)
            before = one if is_flag else None
        return concealments

    def _keys(self, value: dict[object, object]) -> list[object]:
        """Keys that become equal are numbered, so that no entry is lost."""
        numbers = count(2)
        taken = set(value)
        keys: list[object] = []
        for key in value:
            redacted = unique = self.show(key) if isinstance(key, str) else key
            while redacted is not key and unique in taken:
                unique = f"{redacted}#{next(numbers)}"
            taken.add(unique)
            keys.append(unique)
        return keys

    def _of_values(self, value: dict[object, object], conceal: _Conceal) -> list[_Conceal]:
        if len(value) == 1 and isinstance(name := value.get("$secret"), str) and _REFERENCE().fullmatch(name):
            return [self.show]  # the stored form of hf.secret(…): the name of a secret, not a secret
        names = [key_name(key) if isinstance(key, str) else None for key in value]
        # Next to a logprob, `token` is a word of a language model.
        is_model_output = "logprob" in value
        return [
            conceal
            if name is None or (name["token"] and is_model_output)
            else self._named
            if name["token"]
            else self._password
            for name in names
        ]

    def _password(self, text: str) -> str:
        """Also hides numbers, unlike for tokens, where a number may be a count."""
        return self._named(text)

    def _named(self, text: str) -> str:
        return self.show(text) if is_plain(text) else "[redacted:assignment]"

    def _word_of(self, command: _Command, conceal: _Conceal) -> _Conceal:
        def without_password(text: str) -> str:
            # The user name may be a secret, too.
            return command.without_password(text) if conceal(text) == text else "[redacted:flag]"

        return without_password

    def _line_of_key(self, text: str) -> str:
        return self.show(text) if is_plain(text) or text.startswith("-----END") else "[redacted:pem]"

    def _value_of_flag(self, text: str) -> str:
        return self.show(text) if is_plain(text) else "[redacted:flag]"


class _Command:
    """Which arguments of a command hold a password: some programs have their own flags for it."""

    __slots__ = ("_has_curl", "_in_a_word", "_in_two_words")

    def __init__(self, words: Sequence[object]) -> None:
        texts = [one if isinstance(one, str) else "" for one in words]
        programs = [one.rpartition("/")[2] for one in texts]
        self._has_curl = "curl" in programs
        follows = list(zip(programs, texts[1:], strict=False))
        is_login = any(one in {"docker", "podman"} and then == "login" for one, then in follows)
        self._in_two_words = is_login or "sshpass" in programs
        # For mysql, a separate word after -p is the database.
        is_mysql = any(compiled(_MYSQL).fullmatch(one) and then.startswith("-") for one, then in follows)
        self._in_a_word = self._in_two_words or is_mysql

    def names_secret(self, flag: str, one: object) -> bool:
        """Whether the value of the flag is a secret."""
        if key_name(flag) is not None or (flag == "-p" and self._in_two_words):
            return True
        return (
            self._has_curl
            and isinstance(one, str)
            and compiled(_FLAG_OF_CURL).fullmatch(flag) is not None
            and compiled(_PAIR_OF_CURL).fullmatch(one) is not None
        )

    def without_password(self, word: str) -> str:
        """The word without the password that directly follows a flag, if there is one."""
        found = compiled(_WORD_OF_CURL).fullmatch(word) if self._has_curl else None
        if found is None and self._in_a_word:
            found = compiled(_P_FLAG).fullmatch(word)
        return word if found is None or is_plain(found[2]) else f"{found[1]}[redacted:flag]"
