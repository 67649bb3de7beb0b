"""Values that are secret because the process received them as secrets, whatever they look like.

They are the gateway's own tokens, the secrets of channels, and what `hf.secret` found.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast.core.patterns import compiled_late

MAX_KNOWN = 10_000
# A regex search holds the GIL; between two pieces other threads can run.
PIECE = 64 * 1024
# Shorter values also occur in ordinary text.
_SHORTEST = 4
# Up to this many make one small regex. A regex tries each in turn, so more are looked up by four bytes.
_FEW = 20
_ANCHOR = 4
# How deeply JSON may be nested inside strings of JSON.
_DEEPEST = 4
_MARKER = b"[redacted:secret]"
_MARKERS = rb"\[redacted:[a-z-]++\]"


def search_pieces(
    search: Callable[[bytes, int, int], re.Match[bytes] | None], encoded: bytes, *, overlap: int
) -> bool:
    """Whether the search finds a match; matches longer than the overlap may be missed."""
    for start in range(0, len(encoded), PIECE):
        if search(encoded, start, start + PIECE + overlap) is not None:
            return True
    return False


def forms_of(value: str) -> Iterator[str]:
    """The value as it may occur in text: as it is, in JSON, and in JSON inside the strings of other JSON."""
    yield value
    spellings = []
    with contextlib.suppress(UnicodeEncodeError):  # half of a surrogate pair, which our JSON cannot hold
        spellings.append(_json(value))
    if not value.isascii():
        import json  # only for these: most processes never need it

        spellings.append(json.dumps(value)[1:-1])
    for spelling in spellings:
        for _ in range(_DEEPEST):
            yield spelling
            if (deeper := _json(spelling)) == spelling:
                break
            spelling = deeper


def _json(text: str) -> str:
    return msgspec.json.encode(text)[1:-1].decode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _Index:
    """The forms of some secrets, prepared for searching."""

    __slots__ = ("_anchors", "_forms", "_longest", "_markers", "_regex", "values", "version")

    def __init__(self, kept: Iterable[str], version: object) -> None:
        self.version = version
        # The longest first: one may contain another.
        self.values = tuple(sorted(kept, key=len, reverse=True))
        self._forms = {_bytes(form) for value in self.values for form in forms_of(value)}
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._longest = max(map(len, self._forms), default=0)
        self._regex: re.Pattern[bytes] | None = None
        self._markers = compiled_late(_MARKERS)
        # Four bytes of a form, its bytes before them, and its length. Similar forms share all three, so a
        # thousand of them cost no more attempts than one.
        self._anchors: dict[int, set[tuple[int, int]]] = {}
        if len(self._forms) <= _FEW:
            known = b"|".join(map(re.escape, longest_first)) or b"(?!)"  # without secrets, match nothing
            self._regex = re.compile(known)
            self._markers = compiled_late(rb"(%b)|%b" % (_MARKERS, known))
            return
        for form in longest_first:
            # From the middle: many secrets of one kind begin with the same letters.
            begin = (len(form) - _ANCHOR) // 2
            anchor = int.from_bytes(form[begin : begin + _ANCHOR], sys.byteorder)
            self._anchors.setdefault(anchor, set()).add((begin, len(form)))

    def is_in(self, encoded: bytes) -> bool:
        if self._regex is not None:
            return search_pieces(self._regex.search, encoded, overlap=self._longest)
        return any(True for _ in self._places(encoded))

    def without_them(self, encoded: bytes) -> bytes:
        """The bytes with a marker in place of each secret; the same object if there is none. Of two that
        overlap, the first is replaced; of two that begin together, the longer.

        In one pass, and not inside markers: a secret may be a part of the word `redacted`.
        """
        if self._regex is not None:
            if not self.is_in(encoded):
                return encoded
            return self._markers().sub(lambda match: match[1] or _MARKER, encoded)
        if not (found := set(self._places(encoded))):
            return encoded
        markers = {match.span() for match in self._markers().finditer(encoded)}
        parts: list[bytes] = []
        done = 0
        for begin, end in sorted(found | markers, key=lambda span: (span[0], span not in markers, -span[1])):
            if begin >= done:
                parts += encoded[done:begin], encoded[begin:end] if (begin, end) in markers else _MARKER
                done = end
        return b"".join((*parts, encoded[done:]))

    def _places(self, encoded: bytes) -> Iterator[tuple[int, int]]:
        """Where each form begins and ends, when there are many."""
        for anchor in self._anchors_in(encoded):
            four = anchor.to_bytes(_ANCHOR, sys.byteorder)
            place = encoded.find(four)
            while place >= 0:
                for before, length in self._anchors[anchor]:
                    begin = place - before
                    if begin >= 0 and encoded[begin : begin + length] in self._forms:
                        yield begin, begin + length
                place = encoded.find(four, place + 1)

    def _anchors_in(self, encoded: bytes) -> set[int]:
        anchors: set[int] = set()
        known = self._anchors
        for quads in _quads(encoded):
            if not known.keys().isdisjoint(quads):
                anchors.update(filter(known.__contains__, quads))
        return anchors


def _quads(encoded: bytes) -> Iterator[memoryview]:
    """Every four consecutive bytes as a number, in pieces, without a Python operation for each."""
    for start in range(0, len(encoded), PIECE):
        for offset in range(start, start + _ANCHOR):
            part = memoryview(encoded)[offset : start + PIECE + _ANCHOR - 1]
            yield part[: len(part) & -_ANCHOR].cast("I")


class KnownSecrets:
    """The secrets of one process. It is thread-safe: every thread sees a secret once `keep` has returned.

    There is no lock: writing into a dictionary and copying it are atomic. An index has the version that it
    was made from, so that an outdated one is never used.
    """

    def __init__(self, *, max_known: int = MAX_KNOWN) -> None:
        self._max_known = max_known
        # Each secret, and whether it is never dropped.
        self._kept: dict[str, bool] = {}
        self._version = object()
        self._made = _Index((), self._version)

    def keep(self, value: str, *, is_own: bool = True) -> None:
        """From now on the value is a secret wherever it occurs. Beyond the limit the oldest are dropped,
        except the process's own."""
        if len(value) < _SHORTEST or (value in self._kept and (self._kept[value] or not is_own)):
            return
        self._kept[value] = is_own
        if len(self._kept) > self._max_known:
            found = [one for one, is_kept in tuple(self._kept.items()) if not is_kept]
            for oldest in found[: len(self._kept) - self._max_known]:
                self._kept.pop(oldest, None)
        self._version = object()

    def values(self) -> tuple[str, ...]:
        """All of them, the longest first."""
        return self._index().values

    def are_in(self, encoded: bytes) -> bool:
        """Whether one occurs in the bytes, as it is or as JSON writes it."""
        if not self._kept:
            return False
        made = self._made
        return (made if made.version is self._version else self._index()).is_in(encoded)

    def own_are_in(self, text: str) -> bool:
        """Whether one of the process's own occurs in the text. Those that `hf.secret` found do not count:
        after a restart they are unknown until a program asks for them again."""
        if not self._kept or not self.are_in(_bytes(text)):
            return False
        own = [value for value, is_own in tuple(self._kept.items()) if is_own]
        return any(form in text for value in own for form in forms_of(value))

    def conceal(self, text: str) -> str:
        """The text without them; the same object if it holds none."""
        if not self._kept:
            return text
        encoded = _bytes(text)
        concealed = self._index().without_them(encoded)
        return text if concealed is encoded else concealed.decode("utf-8", "surrogatepass")

    def _index(self) -> _Index:
        made, version = self._made, self._version
        if made.version is not version:
            made = self._made = _Index(tuple(self._kept), version)
        return made


_of_this_process = [KnownSecrets()]


def keep_secret(value: str, *, is_own: bool = True) -> None:
    """From now on, in the whole process, the value is a secret wherever it occurs. Programs may ask for many
    over weeks: pass `is_own=False` for those, so that the oldest are dropped."""
    _of_this_process[-1].keep(value, is_own=is_own)


def known_secrets() -> tuple[str, ...]:
    """All that were kept, the longest first."""
    return _of_this_process[-1].values()


def holds_known(encoded: bytes) -> bool:
    return _of_this_process[-1].are_in(encoded)


def holds_own(text: str) -> bool:
    return _of_this_process[-1].own_are_in(text)


def conceal_known(text: str) -> str:
    return _of_this_process[-1].conceal(text)


@contextlib.contextmanager
def without_known_secrets() -> Iterator[None]:
    """For tests: inside, the process knows no secrets; afterwards, those that it knew before."""
    _of_this_process.append(KnownSecrets())
    try:
        yield
    finally:
        _of_this_process.pop()
