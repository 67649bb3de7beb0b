"""Strict HTTP/1.1 against request smuggling: no bare line feeds, no folded headers, one length."""

from __future__ import annotations

import re

import h11
from h11._receivebuffer import ReceiveBuffer

# A bare line feed, a bare carriage return, and a folded header line.
_LOOSE = re.compile(rb"(?P<feed>(?<!\r)\n)|(?P<carriage>\r(?!\n|\Z))|(?P<folded>\n[ \t])")
_WHY = {
    "feed": "a line ends with a bare line feed; end each line with CR LF",
    "carriage": "a line contains a bare carriage return; end each line with CR LF",
    "folded": "a header is folded over several lines; write it on one line",
}
_END = b"\r\n\r\n"
# Thousands of short headers fit into the size limit, and are slow to parse.
MAX_LINES = 128
NO_HTTP = "not a valid HTTP/1.1 request"


class StrictConnection(h11.Connection):
    """h11's connection, limited to requests that every proxy delimits in the same way."""

    def __init__(self, *, max_head_bytes: int) -> None:
        super().__init__(h11.SERVER, max_head_bytes)
        self.why = NO_HTTP
        self._receive_buffer = StrictBuffer()

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Raises h11.RemoteProtocolError; `why` says what the client must change."""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check_length(event)
        except h11.RemoteProtocolError as error:
            if isinstance(error, AmbiguousRequest):
                self.why = str(error)
            elif error.error_status_hint == 431:
                self.why = "its head is too long; send fewer or shorter headers"
            raise
        return event


class AmbiguousRequest(h11.RemoteProtocolError):
    """A request that two parsers could delimit differently."""


class StrictBuffer(ReceiveBuffer):
    """The lines of a head or a trailer; each must end with CR LF."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        if self._data[:2] != b"\r\n":
            end = self._data.find(_END, max(0, self._multiple_lines_search - len(_END)))
            until = len(self._data) if end < 0 else end + len(_END)
            loose = _LOOSE.search(self._data, max(0, self._multiple_lines_search - len(_END)), until)
            if loose is not None:
                raise AmbiguousRequest(_WHY[str(loose.lastgroup)])
            if self._data.count(b"\n", 0, until) > MAX_LINES:
                raise AmbiguousRequest(f"its head has more than {MAX_LINES} lines; send fewer headers")
        return super().maybe_extract_lines()

    def maybe_extract_next_line(self) -> bytearray | None:
        line = super().maybe_extract_next_line()
        if line is not None and _LOOSE.search(line[:-2]) is not None:
            raise AmbiguousRequest(_WHY["feed"])
        return line


def _check_length(request: h11.Request) -> None:
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" not in names:
        return
    if b"content-length" in names:
        raise AmbiguousRequest("it has both Content-Length and Transfer-Encoding; send one of them")
    if request.http_version < b"1.1":
        raise AmbiguousRequest("HTTP/1.0 has no Transfer-Encoding; send Content-Length")
