"""The OpenAPI document, generated from the table of methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.api.contract import our_version
from holdfast.api.frames import ErrorBody
from holdfast.api.method_kinds import Method
from holdfast.api.methods import METHODS
from holdfast.api.params import Params
from holdfast.api.rpc import HTTP_STATUS

# The errors of every route except the probes.
_REFUSALS = (400, 401, 403, 429, 500, 503)


class RpcErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that failed."""

    error: ErrorBody


def document() -> dict[str, Any]:
    """OpenAPI 3.1: every method as `POST /rpc/<method>`, and the other routes."""
    types: list[Any] = [RpcErrorDocument]
    methods = [method for method in METHODS.values() if not method.is_local]
    for method in methods:
        types += [method.params, method.answer]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for struct in _structs(msgspec.inspect.multi_type_info(types)):
        if not issubclass(struct, Params):
            components[struct.__name__]["required"] = _always_there(struct)
    error, of_methods = schemas[0], schemas[1:]
    paths: dict[str, Any] = {}
    for method, params, answer in zip(methods, of_methods[::2], of_methods[1::2], strict=True):
        paths[f"/rpc/{method.name}"] = {"post": _operation(method, params, answer, error)}
    not_ready = {"503": {"description": "The gateway cannot do work now."}}
    paths |= {
        "/healthz": {"get": _plain("Whether the process answers.", error, (400, 403), security=[])},
        "/readyz": {
            "get": _plain(
                "Whether the gateway can work; 503 until recovery ends, in a drain, and without its ledger.",
                error,
                (400, 403),
                also=not_ready,
                security=[],
            )
        },
        "/metrics": {"get": _plain("Metrics for Prometheus.", error, _REFUSALS)},
        "/events": {
            "get": {
                **_plain(
                    "The event feed as Server-Sent Events; Last-Event-ID continues from there.",
                    error,
                    (*_REFUSALS, 404),
                ),
                "parameters": [
                    _optional("query", "after", "Only events after this position."),
                    _optional("query", "task", "Only events of this task."),
                    _optional("header", "Last-Event-ID", "The same as `after`."),
                ],
            }
        },
        "/openapi.json": {"get": _plain("This document.", error, _REFUSALS)},
        "/channels/{name}": {
            "post": {
                **_plain(
                    "A message to a webhook channel, signed with its secret.",
                    error,
                    (*_REFUSALS, 404, 408, 409, 413, 415),
                    done="202",
                    security=[],
                ),
                "parameters": [
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
            }
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast gateway", "version": our_version()},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(method: Method, params: Any, answer: Any, error: Any) -> dict[str, Any]:
    has_required = any(field.required for field in msgspec.structs.fields(method.params))
    body = params if has_required else {"anyOf": [params, {"type": "null"}]}
    return {
        "operationId": method.name,
        "summary": method.summary,
        "description": f"Needs the scope `{method.scope}`.",
        "requestBody": {"required": has_required, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
            **{
                str(status): _problem(error) for status in sorted({*HTTP_STATUS.values(), 405, 408, 413, 415})
            },
        },
    }


def _structs(found: Any) -> Iterator[type[msgspec.Struct]]:
    """Every struct in a type description, at any depth, once."""
    waiting, seen = [found], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, (list, tuple)):
            waiting += one
        elif isinstance(one, msgspec.Struct) and id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, msgspec.inspect.StructType):
                yield one.cls
            waiting += [getattr(one, name) for name in one.__struct_fields__]


def _always_there(struct: type[msgspec.Struct]) -> list[str]:
    """The fields that an answer always has: all, unless it omits defaults."""
    has_all = not struct.__struct_config__.omit_defaults
    return [one.encode_name for one in msgspec.structs.fields(struct) if has_all or one.required]


def _optional(place: str, name: str, meaning: str) -> dict[str, Any]:
    schema = {"type": "string"}
    return {"name": name, "in": place, "required": False, "description": meaning, "schema": schema}


def _plain(
    summary: str,
    error: Any,
    refusals: Sequence[int],
    *,
    done: str = "200",
    also: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    problems = {str(status): _problem(error) for status in sorted({*refusals, 405})}
    return {
        "summary": summary,
        "responses": {done: {"description": summary}, **problems, **(also or {})},
        **more,
    }


def _problem(error: Any) -> dict[str, Any]:
    return {"description": "The request failed.", "content": {"application/json": {"schema": error}}}
