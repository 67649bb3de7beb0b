"""Hides what may be a password in a command of the settings; when in doubt, it hides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from holdfast.config.places import without_password
from holdfast.core.redaction import redact, redact_text
from holdfast.core.secret_shapes import CURL_FLAG

_HIDDEN = "…"
# Longer words are cut.
_MOST_CHARS = 2000
# Flags whose value may be a password: mysql -p, sshpass -p, redis-cli -a, curl -u, -H and -b.
_SHORT = re.compile(r"-[apubUHk]")
# The same for certain programs only: zip -P, sqlcmd -P, ldapsearch -w.
_SHORT_OF_KNOWN = re.compile(r"-[apubUHkPw]")
_NAMED = (
    r"(?i:[\w.-]*(?:auth|cookie|pass|pwd|token|secret|key|cred|login|sig|bearer|connection|(?<![A-Za-z])"
    r"(?:pw|pin|psk|otp|dsn)(?![A-Za-z]))[\w.-]*)"
)
_LONG = re.compile(rf"--?(?:{_NAMED}|[\w-]*(?i:user|header)[\w-]*)(?![\w-])")
_SECRET_NAME = re.compile(rf"[\"']?{_NAMED}=")
# Programs whose short flags take passwords, even passwords of digits only.
_KNOWN = re.compile(
    r"7z|bcp|ldap[a-z]+|mariadb[a-z-]*|mongo[a-z]*|mysql[a-z]*|redis-cli|smbclient|sqlcmd|sqlplus|sshpass|(un)?zip"
)
# More digits than a port has.
_LONG_NUMBER = re.compile("[0-9]{6}")
# sqlplus scott/tiger@db, and curl -sSubob:secret
_ORACLE = re.compile(r"([^\s/@]{1,100}/)[^\s@]+(@.*)?", re.DOTALL)
_CURL = re.compile(rf"(-{CURL_FLAG})[^:]*:.*", re.DOTALL)
_USER_IN_URL = re.compile(r"(?i)(https?://)[^/@\s]+@")
_ASSIGNED = re.compile(r"([\w.-]{1,100}=)(.+)", re.DOTALL)
_HEADER = re.compile(r"([\"']?[A-Za-z][\w-]{0,60}:\s*+)\S.*", re.DOTALL)
_PAIR = re.compile(r"([^\s:/@=]{1,100}:)[^/\\\s].*", re.DOTALL)
_ADDRESS = re.compile(r"[\w+.-]{1,30}:/{0,2}.*@|[\w+.-]{1,30}://")
_AFTER_SIGN = re.compile(r"([?&#][^=&#\s]{0,100}=?)[^&#\s]*")
# A port, a number or a range of ports: not a password.
_NUMBERS = re.compile(r"[0-9][0-9.:,-]*")
# A word, a path, a version or a date: not a password.
_TYPED = re.compile(
    r"[A-Za-z]{0,40}|[~.\w-]*(?:[/\\][\w.@+ -]*)+|[\w-]{1,40}\.[a-z]{1,5}|[A-Za-z]+[-_.]?[0-9.]{1,8}"
)
_SIGNS = re.compile(r"[0-9!$%^&*+~#]")


def command_to_show(command: list[str]) -> list[str]:
    """The program and its arguments; each part that may be a password is replaced by `…`."""
    shown = redact(command)
    words = [str(word)[:_MOST_CHARS] for word in shown] if isinstance(shown, list) else []
    return [*words[:1], *_Shown(words).arguments(words[1:])]


class _Shown:
    """Shows the arguments of one command, and of a shell command line inside it."""

    __slots__ = ("_is_known", "_is_oracle", "_short")

    def __init__(self, words: list[str]) -> None:
        programs = {word.strip("\"'(").rpartition("/")[2] for word in words}
        self._is_known = any(map(_KNOWN.fullmatch, programs))
        self._is_oracle = "sqlplus" in programs
        self._short = _SHORT_OF_KNOWN if self._is_known else _SHORT

    def arguments(self, words: Iterable[str]) -> Iterator[str]:
        flag = ""
        for word in words:
            if word.startswith("[redacted:"):
                yield word
            elif any(sign.isspace() for sign in word) and not self._has_value(flag):
                # The argument of `sh -c` is a command itself.
                parts = re.split(r"(\s+)", redact_text(word))
                yield "".join(_Shown(parts[::2]).with_gaps(parts))
            else:
                yield self._one(word, flag)
            flag = word

    def with_gaps(self, parts: list[str]) -> Iterator[str]:
        shown = list(self.arguments(parts[::2]))
        gaps = [*parts[1::2], ""]
        for one, gap in zip(shown, gaps, strict=True):
            yield one + gap

    def _has_value(self, flag: str) -> bool:
        return self._short.fullmatch(flag) is not None or _LONG.fullmatch(flag) is not None

    def _is_number(self, word: str) -> bool:
        """Whether it is a port, a count or a range, and not a password of digits."""
        is_password = self._is_known or _LONG_NUMBER.search(word) is not None
        return _NUMBERS.fullmatch(word) is not None and not is_password

    def _one(self, word: str, flag: str) -> str:
        if word.startswith("-"):
            return self._flag(word)
        if self._has_value(flag) and not self._is_number(word):
            return _value_of_flag(word, flag)
        if assigned := _ASSIGNED.fullmatch(word):
            return f"{assigned[1]}{self._assigned(assigned[1], assigned[2])}"
        if _ADDRESS.match(word):
            url = _USER_IN_URL.sub(lambda found: f"{found[1]}{_HIDDEN}@", without_password(word))
            return _AFTER_SIGN.sub(lambda found: f"{found[1]}{_HIDDEN}", url)
        if pair := _PAIR.fullmatch(word):
            return word if _NUMBERS.fullmatch(word[len(pair[1]) :]) else f"{pair[1]}{_HIDDEN}"
        if self._is_oracle and (login := _ORACLE.fullmatch(word)):
            return f"{login[1]}{_HIDDEN}{login[2] or ''}"
        return _HIDDEN if _may_be_random(word) else word

    def _assigned(self, name: str, value: str) -> str:
        if _SECRET_NAME.fullmatch(name):
            return _HIDDEN
        is_variable = name.isupper() and _SIGNS.search(value) is not None
        is_plain = _NUMBERS.fullmatch(value) is not None or not (is_variable or _ASSIGNED.match(value))
        return self._one(value, "") if is_plain else _HIDDEN

    def _flag(self, word: str) -> str:
        name, sign, value = word.partition("=")
        if sign:
            return (
                f"{name}={_HIDDEN}" if self._has_value(name) and value else f"{name}={self._one(value, '')}"
            )
        if curl := _CURL.fullmatch(word):
            return f"{curl[1]}{_HIDDEN}"
        # -psecret, -uroot:secret
        if not word.startswith("--") and len(word) > 2 and self._short.match(word):
            return word if self._is_number(word[2:]) else f"{word[:2]}{_HIDDEN}"
        return word


def _value_of_flag(word: str, flag: str) -> str:
    """Show the name of a header, the first half of a pair, and all of `-u root`."""
    if found := _HEADER.fullmatch(word) or _PAIR.fullmatch(word):
        return f"{found[1]}{_HIDDEN}"
    return word if flag in ("-u", "-U", "--user", "--username") and not _may_be_random(word) else _HIDDEN


def _may_be_random(word: str) -> bool:
    is_typed = _TYPED.fullmatch(word) is not None or _NUMBERS.fullmatch(word) is not None
    return len(word) >= 6 and not is_typed and _SIGNS.search(word) is not None
