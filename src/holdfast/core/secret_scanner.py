"""Decides whether bytes may hold a secret: in one search, without decoding them.

It may report false positives: its answer decides whether stored bytes are sealed, and sealing too much costs
little. For text that people read, `core/redaction.py` searches again, precisely; it finds nothing where this
search found nothing.
"""

from __future__ import annotations

import re

from holdfast.core.known_secrets import PIECE, holds_known, search_pieces
from holdfast.core.patterns import compiled_late
from holdfast.core.secret_shapes import CURL_FLAG, OF_A_KIND, OWN_ID

# No hint is longer than this.
_LONGEST_HINT = 1024
_OWN_ID = OWN_ID.encode()
_ZEROS = b"0" * 26


def holds_secret(encoded: bytes) -> bool:
    """Whether stored bytes may hold a secret.

    Large input is searched in pieces, so that other threads can run between two of them.
    """
    if (
        len(encoded) <= PIECE and _HINTS().search(encoded) is None
    ):  # every step has a value, and most are clean
        return holds_known(encoded)
    return has_hint(encoded) or holds_known(encoded)


def has_hint(encoded: bytes) -> bool:
    """Whether the bytes of a text or of its JSON hold a hint: every secret has one, and some other text."""
    if not _finds_hint(encoded):
        return False
    # One id in some thousands reads `pwd` by chance. If such a value were sealed, a ledger without secrets
    # would need a key. Zeros keep the shape of what is around the id.
    without_ids, ids = re.subn(_OWN_ID, _ZEROS, encoded)
    return ids == 0 or _finds_hint(without_ids)


def _finds_hint(encoded: bytes) -> bool:
    if len(encoded) <= PIECE:
        return _HINTS().search(encoded) is not None
    return search_pieces(_HINTS().search, encoded, overlap=_LONGEST_HINT)


def _in_any_case(word: str) -> str:
    return f"(?i:{word})"


def _word(word: str, then: str = "") -> list[tuple[str, str]]:
    """A word in any case; the search looks for the letter after the bar."""
    before, after = word.split("|")
    rest = rf"{_in_any_case(after[1:])}(?<={_in_any_case(before)}.{{{len(after)}}}){then}"
    return [(after[0], rest), (after[0].upper(), rest)]


def _prefixed(sign: str, prefixes: str, *, last: str) -> tuple[str, str]:
    """A prefix, a sign and a long run of letters; the search looks for the sign.

    It checks the last letter of the prefixes first: few ids have one of them there.
    """
    known = "|".join(f"(?<={prefix}.{{17}})" for prefix in prefixes.split())
    return sign, rf"(?<=[{last}].)[\w-]{{16}}(?:{known})"


# The branches are tried one after another, so the most frequent in clean text come first.
_OFTEN = ("c", "p", r"\.", "k", "_", "-", "/")


def _any_of(*hints: tuple[str, str]) -> str:
    rests = {first: [rest for other, rest in hints if other == first] for first in (*_OFTEN, *dict(hints))}
    return "|".join(f"{first}(?:{'|'.join(ways)})" for first, ways in rests.items())


def _query(name: str, length: int) -> str:
    """A name in the query of a URL and so much of its value; the search looks for the sign between them."""
    return rf"(?<={name}=){_URL_REST}{{{length}}}(?<=[?&;]{name}=.{{{length}}})"


_WORDS = "authori|zation coo|kie |credential se|cret"
# A quote in JSON, in JSON inside JSON, and after backslashes of the text itself.
_QUOTE = r"""\\{0,63}["'`]"""
# After a name that also has ordinary uses: the end of a quoted name, or a sign that assigns a value.
_VALUE = r"(?:[ \t]|\\{1,3}t){0,4}[:=!]"
_GIVEN = rf"[0-9]{{0,2}}(?:{_QUOTE}|{_VALUE})"
# The rest of words that begin with the letter p in any case.
_PASS = rf"(?:(?<=[\"'`]pass)[0-9]{{0,2}}{_QUOTE}|[0-9]{{0,2}}{_VALUE}|(?<=sshpass)|(?<=pgpass)|w|phrase)"
_PW = rf"[wW](?:[dD]|(?<=[\"'`]..)[0-9]{{0,2}}{_QUOTE}|[0-9]{{0,2}}{_VALUE})"
# From one argument of a command to the next, and from a flag to its value.
_GAP = r"""[\\"',\sntr]{1,160}+"""
# A user for curl. It must not contain a second flag, so that each of many flags in a row is checked once.
_USER, _QUOTED_USER = (
    rf"(?>(?:[^:\"'{excluded}-]|-(?!{CURL_FLAG})){{0,256}})" for excluded in (r"\s", r"\n\r\t")
)
_URL_PART = r"""[^\s/@":]"""
_URL_REST = r"""[^\s/@"]"""
# Every secret, and every name of one, contains a hint. The search stops at each first letter or sign, so they
# are chosen to be rare in clean text. Hints are ASCII that JSON never escapes, and none depends on the text
# before it: a hint in a string is a hint in its encoding, so JSON without one need not be decoded.
_HINT = _any_of(
    *(hint for word in _WORDS.split() for hint in _word(word)),
    *_word("to|ken", _GIVEN),
    *((letter, f"[eE][yY]{OF_A_KIND}|ey-[0-9a-z]{{32}}") for letter in "kK"),
    *((letter, f"[aA](?i:ss{_PASS})|{_PW}|[iI][0-9A-Fa-f]{{32}}(?<=(?i:dapi).{{32}})") for letter in "pP"),
    *((sign, f"{_in_any_case('p(?:ass|w)')}(?![A-Za-z])") for sign in "_-"),
    ("p", f"odman{_GAP}login"),
    ("k", f"er(?<=docker){_GAP}login"),
    ("q", f"l(?<=mysql)[a-z]{{0,6}}{_GAP}-"),
    ("-", rf"(?<!--)-[\w-]{{0,24}}?{_in_any_case('token')}[0-9]{{0,2}}[ \t\\]"),
    ("-", rf"{CURL_FLAG}[\\\"',\s=nrt]{{0,160}}+(?:(?<=[\"']){_QUOTED_USER}|{_USER}):(?!//)[^\s]"),
    _prefixed("_", "gh[pousr] pat live test whsec npm hf gsk r8 shp[a-z]{2}", last="acefkmoprstu8"),
    _prefixed("_", "do[opr]_v1 ntn lin_api lin_oauth", last="1nih"),
    _prefixed(
        "-", "sk gl[a-z]{2} gl[a-z]{3} gl[a-z]{4} gl[a-z]{5} xapp pypi xai tskey GOCSPX", last="ikpstyX"
    ),
    ("-", r"(?<=xox[a-z].)[\w-]{16}"),
    _prefixed(r"\.", "SG ya29 hv[bsr]", last="G9bsr"),
    (r"\.", r"[\w-]{6}\.[\w-]{27}|slack\.com|com/api/|[A-Za-z0-9]{24}(?<=s.{25})"),
    ("A", r"[BKS]IA|CCA|3T|Iza|A[\w-]{33}|C[0-9a-z]{32}"),
    ("S", "K[0-9a-z]{32}"),
    ("B", r"EGIN [A-Z0-9 ]{0,40}PRIVATE KEY|earer |EARER "),
    ("J", r"(?<=eyJ)[\w=-]{8}"),
    ("=", "|".join((_query("key", 8), _query("sig", 16), _query("code", 16)))),
    # In a URL: a user and a password before the @, or a long user alone; or either, longer than a host.
    (
        "/",
        (
            rf"/(?<=://)(?:{_URL_PART}{{256}}|{_URL_PART}{{16,255}}+@"
            rf"|{_URL_PART}{{0,255}}+:{_URL_REST}{{0,255}}+[^\s/\"])"
        ),
    ),
    (r"\\", "/|u00[2-7]"),  # other encoders may escape characters that need no escape
)


_HINTS = compiled_late(_HINT.encode())  # once for text and JSON: compiling takes milliseconds
