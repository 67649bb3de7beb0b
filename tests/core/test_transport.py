"""Transport errors: an answer was lost, so what was asked may have been done."""

from __future__ import annotations

import errno
import http.client
import importlib
import json
import socket
import ssl
import subprocess
from typing import Any

import pytest

from holdfast.core.transport import is_transport_error


def bare(name: str) -> BaseException:
    """An instance of a library's own class, whatever its constructor wants."""
    module, _, kind = name.rpartition(".")
    found: Any = getattr(importlib.import_module(module), kind)
    error: BaseException = found.__new__(found)
    return error


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("slow"),
        subprocess.TimeoutExpired(["make"], 10),
        ConnectionResetError("reset"),
        BrokenPipeError("gone"),
        socket.gaierror(-2, "no such host"),
        ssl.SSLError("bad record"),
        EOFError("half an answer"),
        OSError(errno.EHOSTUNREACH, "no route"),
        OSError(errno.ENETDOWN, "down"),
        http.client.IncompleteRead(b"half"),
        http.client.BadStatusLine("?"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_lost_answer_is_a_transport_error(error: BaseException) -> None:
    assert is_transport_error(error)


@pytest.mark.parametrize(
    "name",
    [
        "httpx.ReadError",
        "httpx.ReadTimeout",
        "httpx.ConnectError",
        "httpx.PoolTimeout",
        "httpx.RemoteProtocolError",
        "httpx.WriteError",
        "httpcore.ReadError",
        "httpcore.RemoteProtocolError",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.ReadTimeout",
        "requests.exceptions.ChunkedEncodingError",
        "requests.exceptions.SSLError",
        "urllib3.exceptions.ProtocolError",
        "urllib3.exceptions.IncompleteRead",
        "urllib3.exceptions.MaxRetryError",
        "urllib3.exceptions.ReadTimeoutError",
        "urllib3.exceptions.NewConnectionError",
        "urllib3.exceptions.SSLError",
        "aiohttp.ServerDisconnectedError",
        "aiohttp.ClientOSError",
        "aiohttp.ClientPayloadError",
        "aiohttp.ServerTimeoutError",
        "aiohttp.ClientConnectorError",
        "botocore.exceptions.ReadTimeoutError",
        "botocore.exceptions.ConnectTimeoutError",
        "botocore.exceptions.EndpointConnectionError",
        "botocore.exceptions.ConnectionClosedError",
        "botocore.exceptions.SSLError",
        "websockets.exceptions.ConnectionClosedError",
        "websockets.exceptions.ConnectionClosedOK",
        "websockets.exceptions.InvalidHandshake",
    ],
)
def test_the_transport_errors_of_libraries_are_known_by_their_names(name: str) -> None:
    assert is_transport_error(bare(name))


@pytest.mark.parametrize(
    "name",
    [
        "httpx.HTTPStatusError",
        "httpx.InvalidURL",
        "requests.exceptions.HTTPError",
        "requests.exceptions.JSONDecodeError",
        "requests.exceptions.MissingSchema",
        "aiohttp.ClientResponseError",
        "aiohttp.ContentTypeError",
        "botocore.exceptions.ClientError",
        "botocore.exceptions.NoCredentialsError",
    ],
)
def test_an_answer_that_says_no_is_none(name: str) -> None:
    assert not is_transport_error(bare(name))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such address"),
        json.JSONDecodeError("nonsense", "<html>", 0),
        FileNotFoundError(errno.ENOENT, "no file"),
        PermissionError(errno.EACCES, "not yours"),
        OSError(errno.ENOSPC, "disk full"),
        KeyError("id"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_files_and_of_the_program_are_none(error: BaseException) -> None:
    assert not is_transport_error(error)


@pytest.mark.parametrize(
    ("code", "is_open"),
    [("UNAVAILABLE", True), ("DEADLINE_EXCEEDED", True), ("INTERNAL", True), ("INVALID_ARGUMENT", False)],
)
def test_an_error_of_grpc_says_by_its_code_what_it_is(code: str, is_open: bool) -> None:
    grpc = importlib.import_module("grpc")

    class Failed(grpc.RpcError):  # type: ignore[misc, name-defined]
        def code(self) -> Any:
            return getattr(grpc.StatusCode, code)

    assert is_transport_error(Failed()) is is_open


def test_an_error_of_grpc_without_a_code_leaves_it_open() -> None:
    assert is_transport_error(bare("grpc.RpcError"))


def raised(error: BaseException, cause: BaseException | None) -> BaseException:
    try:
        raise error from cause  # noqa: TRY301 - so that it has a cause
    except BaseException as caught:  # noqa: BLE001 - any kind
        return caught


def in_handler(error: Exception, handled: Exception) -> Exception:
    try:
        try:
            raise handled
        except type(handled):
            raise error  # noqa: B904 - the context is what is tested
    except type(error) as caught:
        return caught


def test_causes_contexts_and_groups_are_looked_at() -> None:
    deep = raised(
        ValueError("no json"), raised(RuntimeError("request failed"), ConnectionResetError("reset"))
    )

    assert is_transport_error(deep)
    assert is_transport_error(in_handler(ValueError("no json"), TimeoutError("slow")))
    assert is_transport_error(ExceptionGroup("both", [ValueError("a"), ExceptionGroup("b", [EOFError()])]))
    assert not is_transport_error(ExceptionGroup("both", [ValueError("a"), KeyError("b")]))


def test_what_the_caller_was_handling_before_the_call_does_not_count() -> None:
    handled = TimeoutError("of the call before it")
    error = in_handler(ValueError("no json"), handled)

    assert is_transport_error(error)
    assert not is_transport_error(error, outside=handled)


def test_a_chain_that_ends_in_itself_is_walked_once() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one

    assert not is_transport_error(one)
