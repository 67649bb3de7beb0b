"""What is asked over HTTP: every answer has one meaning, and nothing is sent that was not meant."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from holdfast.core.effect import EffectClass
from holdfast.core.errors import BadInput, PayloadTooLarge, RetryAfter
from holdfast.core.step_declarations import keyed, options_of, tool
from holdfast.tools import HttpFailed, HttpNotSent, HttpResponse, http_get, http_request
from holdfast.tools.http import MAX_BODY_BYTES
from tests.tools import keyed_calls
from tests.tools.keyed_calls import KEY

Answer = Callable[[BaseHTTPRequestHandler], None]


async def call(fn: Callable[..., Any], key: str = KEY, /, *args: Any, **kwargs: Any) -> Any:
    """The servers of these tests are on loopback."""
    return await keyed_calls.call(fn, key, *args, **{"allow_private": True, **kwargs})


class Server(ThreadingHTTPServer):
    """On loopback. It remembers what it was asked, and answers as the test wants."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Answer = plain()


class _Answers(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        self.server.answer(self)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _do  # noqa: N815 - their names


def plain(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"content_length": str(len(body)), **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    return answer


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running.asked.clear()
    running.answer = plain()
    return running


# --- requests that change something


async def test_a_request_carries_the_key_and_its_answer_is_a_result(server: Server) -> None:
    server.answer = plain(
        201,
        "Schön".encode("latin-1"),
        content_type="text/plain; charset=ISO-8859-1",
        etag='"7"',
        set_cookie="session=opensesame",
        x_ratelimit_remaining="3",
    )

    result = await call(
        http_request,
        KEY,
        "post",
        f"{server.url}/a?b=%20#c",
        headers={"Authorization": "Bearer me"},
        json={"ü": [1]},
    )

    [(method, path, headers, body)] = server.asked
    assert (method, path, json.loads(body)) == ("POST", "/a?b=%20", {"ü": [1]})
    assert (headers["idempotency-key"], headers["authorization"]) == (KEY, "Bearer me")
    assert (headers["content-type"], headers["user-agent"]) == ("application/json", "holdfast")
    assert (result.status, result.body, result.is_body_cut) == (201, "Schön", False)
    assert {"etag", "content-type", "x-ratelimit-remaining"} <= set(result.headers)
    assert "set-cookie" not in result.headers


async def test_the_key_goes_into_the_header_that_the_provider_wants(server: Server) -> None:
    await call(http_request, KEY, "PUT", server.url, body="high tide", idempotency_header="X-Request-Token")

    [(method, path, headers, body)] = server.asked
    assert (method, path, body, headers["x-request-token"]) == ("PUT", "/", b"high tide", KEY)
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert "idempotency-key" not in headers


@pytest.mark.parametrize("status", [204, 303, 307, 404, 409, 429])
async def test_an_answer_below_500_is_a_result_and_a_redirect_is_not_followed(
    server: Server, status: int
) -> None:
    server.answer = plain(status, location="/elsewhere")

    result = await call(http_request, KEY, "DELETE", server.url)

    assert result.status == status
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_after_a_failure_of_the_server_it_may_have_happened(server: Server, status: int) -> None:
    server.answer = plain(status, b"the tide is out")

    with pytest.raises(HttpFailed, match=f"it answered {status}; its answer: the tide is out") as failed:
        await call(http_request, KEY, "POST", server.url)

    assert isinstance(failed.value, ConnectionError)  # the engine asks again with the same key
    assert failed.value.status == status


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [(429, "7", 7), (503, "0", 0), (429, "9" * 50, 86_400), (503, "later", None), (503, "-3", None)],
)
async def test_a_server_that_asks_for_patience_gets_it(
    server: Server, status: int, header: str, seconds: float | None
) -> None:
    server.answer = plain(status, retry_after=header)

    with pytest.raises(HttpFailed if seconds is None else RetryAfter) as wait:
        await call(http_request, KEY, "POST", server.url)

    assert getattr(wait.value, "seconds", None) == seconds


async def test_a_moment_counts_by_the_clock_of_the_server(server: Server) -> None:
    now = datetime(2001, 2, 3, tzinfo=UTC)

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response_only(429)
        request.send_header("Date", format_datetime(now, usegmt=True))
        request.send_header("Retry-After", format_datetime(now + timedelta(minutes=2), usegmt=True))
        request.end_headers()

    server.answer = answer

    with pytest.raises(RetryAfter) as wait:
        await call(http_get, KEY, server.url)

    assert wait.value.seconds == 120


async def test_a_server_that_goes_away_may_have_done_it(server: Server) -> None:
    def hang_up(request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True

    def promise_more(request: BaseHTTPRequestHandler) -> None:
        plain(200, b"half", content_length="8")(request)
        request.close_connection = True

    for answer, why in ((hang_up, "closed connection"), (promise_more, "IncompleteRead")):
        server.answer = answer
        with pytest.raises(HttpFailed, match=why):
            await call(http_request, KEY, "POST", server.url)


async def test_a_server_that_does_not_answer_in_time_may_have_done_it(server: Server) -> None:
    gate = threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> None:
        gate.wait(10)

    server.answer = wait

    try:
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.2 s") as late:
            await call(http_request, KEY, "POST", server.url, timeout_s=0.2)
    finally:
        gate.set()

    assert not isinstance(late.value, HttpNotSent)
    assert len(server.asked) == 1


async def test_a_server_that_answers_a_letter_at_a_time_has_no_more_time_than_others(server: Server) -> None:
    gate = threading.Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not gate.wait(0.01):
            request.wfile.write(b"X")

    server.answer = drip

    try:
        with pytest.raises(TimeoutError):
            await call(http_request, KEY, "POST", server.url, timeout_s=0.2)
    finally:
        gate.set()


async def test_without_a_listener_nothing_was_sent(server: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"

        with pytest.raises(HttpNotSent, match="Connection refused") as refused:
            await call(http_request, KEY, "POST", url)

    assert not isinstance(refused.value, OSError)  # definite


async def test_without_trust_in_the_certificate_nothing_was_sent(server: Server) -> None:
    with pytest.raises(HttpNotSent):  # it does not even speak TLS
        await call(http_request, KEY, "POST", server.url.replace("http:", "https:"))

    assert server.asked == []


async def test_a_cancelled_request_leaves_no_thread_behind(server: Server) -> None:
    gate, arrived = threading.Event(), threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> None:
        arrived.set()
        gate.wait(10)

    server.answer = wait
    async with asyncio.TaskGroup() as group:
        child = group.create_task(call(http_request, KEY, "POST", server.url, timeout_s=30))
        await asyncio.to_thread(arrived.wait, 10)
        child.cancel()
    # What would hang here for the 30 seconds of the request.
    await asyncio.get_running_loop().shutdown_default_executor()
    gate.set()

    assert child.cancelled()


async def test_a_proxy_that_the_environment_names_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//user:pa%20ss@"))

    await call(http_request, KEY, "POST", "http://tides.example:81/a?b")

    [(_, path, headers, _)] = server.asked
    assert (path, headers["host"]) == ("http://tides.example:81/a?b", "tides.example:81")
    assert headers["proxy-authorization"] == "Basic dXNlcjpwYSBzcw=="


async def test_a_proxy_of_another_kind_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1080")

    with pytest.raises(HttpNotSent, match="of the kind socks5: is not supported"):
        await call(http_get, KEY, "http://tides.example/")


# --- reads


async def test_a_read_follows_redirects_and_another_host_gets_no_header_of_ours(server: Server) -> None:
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    ways = {"/": "/near", "/near": f"{elsewhere}/far"}

    def answer(request: BaseHTTPRequestHandler) -> None:
        way = ways.get(request.path)
        plain(200, b"here")(request) if way is None else plain(302, location=way)(request)

    server.answer = answer

    result = await call(http_get, KEY, server.url, headers={"X-Api-Key": "mine", "Accept": "text/plain"})

    assert (result.status, result.body, result.url) == (200, "here", f"{elsewhere}/far")
    assert [headers.get("x-api-key") for _, _, headers, _ in server.asked] == ["mine", "mine", None]
    assert [headers["accept"] for _, _, headers, _ in server.asked] == ["text/plain"] * 3


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("/", "more than 10 redirects"),
        ("file:///etc/passwd", "http://"),
        ("http://[", "an invalid URL"),
    ],
)
async def test_a_redirect_without_end_or_to_no_such_place_fails(
    server: Server, location: str, why: str
) -> None:
    server.answer = plain(301, location=location)

    with pytest.raises(HttpFailed, match=why):
        await call(http_get, KEY, server.url)


async def test_of_a_long_body_the_beginning_is_kept_and_odd_bytes_are_replaced(server: Server) -> None:
    server.answer = plain(
        200, b"\xff" + b"x" * 2 * MAX_BODY_BYTES, content_type="text/plain; charset=nonsense"
    )

    result = await call(http_get, KEY, server.url)

    assert (len(result.body), result.body[:2], result.is_body_cut) == (MAX_BODY_BYTES, "\ufffdx", True)


async def test_a_charset_that_can_spell_half_a_sign_does_no_harm(server: Server) -> None:
    server.answer = plain(200, b"\x00\xd8", content_type="text/plain; charset=UTF-16LE")

    assert (await call(http_get, KEY, server.url)).body == "\ufffd"


async def test_a_head_has_no_body(server: Server) -> None:
    server.answer = plain(200, b"four")

    result = await call(http_get, KEY, server.url, method="HEAD")

    assert result == HttpResponse(status=200, url=server.url, headers=result.headers, body="")
    assert result.headers["content-length"] == "4"


# --- what they declare


def test_a_read_is_a_read_and_a_request_is_keyed_for_a_day_or_as_is_said() -> None:
    for_a_week = tool(http_request, effect=keyed("7d"))
    effects = [options_of(one).effect for one in (http_get, http_request, for_a_week)]

    assert [effect and (effect.effect_class, effect.window and effect.window.days) for effect in effects] == [
        (EffectClass.READ, None),
        (EffectClass.KEYED, 1),
        (EffectClass.KEYED, 7),
    ]


# --- what is wrong is said by name


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"method": "GET"}, "method"),
        ({"method": "CONNECT"}, "method"),
        ({"method": "PO ST"}, "method"),
        ({"method": "POST\r\nX: y"}, "method"),
        ({"method": ""}, "method"),
        ({"method": None}, "method"),
        ({"url": ""}, "url"),
        ({"url": "tides.example"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "ftp://tides.example"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://tides.example:x"}, "url"),
        ({"url": "http://tides.example:99999"}, "url"),
        ({"url": "http://[::1"}, "url"),
        ({"url": "http://a b"}, "url"),
        ({"url": "http://a/\r\nX:y"}, "url"),
        ({"url": "http://a/ü"}, "url"),
        ({"url": "http://user:word@a/"}, "url"),
        ({"url": 7}, "url"),
        ({"headers": {"A": "b\r\nC: d"}}, "header A"),
        ({"headers": {"A": "\u2603"}}, "header A"),
        ({"headers": {"A": 7}}, "header A"),
        ({"headers": {"A b": "c"}}, "headers"),
        ({"headers": {"Host": "c"}}, "headers"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers"),
        ({"headers": {"idempotency-key": "mine"}}, "headers"),
        ({"headers": {"A": "b", "a": "c"}}, "headers"),
        ({"headers": ["A"]}, "headers"),
        ({"json": {1, 2}}, "json"),
        ({"json": float("nan")}, "json"),
        ({"json": {}, "body": ""}, "body"),
        ({"body": b"x"}, "body"),
        ({"body": "\ud800"}, "body"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": None}, "timeout_s"),
        ({"idempotency_header": "a b"}, "idempotency_header"),
        ({"idempotency_header": "Host"}, "idempotency_header"),
    ],
)
async def test_no_such_request(arguments: dict[str, Any], field: str) -> None:
    given = {"method": "POST", "url": "http://127.0.0.1:9/", **arguments}

    with pytest.raises(BadInput) as refusal:
        await call(http_request, KEY, **given)

    assert refusal.value.field == field
    assert "word" not in str(refusal.value).replace("password", "")


async def test_too_much_to_send_is_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        await call(http_request, KEY, "POST", "http://127.0.0.1:9/", body="x" * (16 * 1024 * 1024 + 1))


async def test_a_read_takes_only_what_reads() -> None:
    with pytest.raises(BadInput, match="http_request takes the others"):
        await call(http_get, KEY, "http://127.0.0.1:9/", method="POST")
