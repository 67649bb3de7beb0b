"""The OpenAPI document, made from the table of methods."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.api.contract import our_version
from holdfast.api.frames import ErrorBody
from holdfast.api.methods import METHODS, Method
from holdfast.api.rpc import HTTP_STATUS


class RpcErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a request gets that was not done."""

    error: ErrorBody


def document() -> dict[str, Any]:
    """OpenAPI 3.1: every method as `POST /rpc/<method>`, and the other routes."""
    types: list[Any] = [RpcErrorDocument]
    for method in METHODS.values():
        types += [method.params, method.answer]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    error, of_methods = schemas[0], schemas[1:]
    paths: dict[str, Any] = {}
    for method, params, answer in zip(METHODS.values(), of_methods[::2], of_methods[1::2], strict=True):
        paths[f"/rpc/{method.name}"] = {"post": _operation(method, params, answer, error)}
    paths |= {
        "/healthz": {"get": _plain("Whether the process answers.", security=[])},
        "/readyz": {"get": _plain("Whether recovery is over; 503 until then and during drain.", security=[])},
        "/metrics": {"get": _plain("Numbers for Prometheus.")},
        "/events": {"get": _plain("The feed as Server-Sent Events; Last-Event-ID goes on from there.")},
        "/openapi.json": {"get": _plain("This document.")},
        "/channels/{name}": {
            "post": {
                **_plain("A message to a webhook channel, signed with its secret.", security=[]),
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
    problem = {"description": "It was not done.", "content": {"application/json": {"schema": error}}}
    return {
        "operationId": method.name,
        "summary": method.summary,
        "description": f"Needs the scope `{method.scope}`.",
        "requestBody": {"required": False, "content": {"application/json": {"schema": params}}},
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
            **{str(status): problem for status in sorted({*HTTP_STATUS.values(), 408, 413, 415})},
        },
    }


def _plain(summary: str, **more: Any) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": summary}}, **more}
