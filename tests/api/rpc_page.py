"""The tables of docs/guides/rpc.md, made from the code: `python -m tests.api.rpc_page` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from holdfast.api.method_kinds import Method
from holdfast.api.methods import METHODS
from holdfast.api.rpc import HTTP_STATUS

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "rpc.md"


def methods_table() -> str:
    rows = [
        "| method | scope | owners | parameters | answer | does |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| `{one.name}` | `{one.scope}` | {_owners(one)} | {_params(one)} "
        f"| `{one.answer.__name__}` | {one.summary} |"
        for one in METHODS.values()
    ]
    return "\n".join(rows)


def codes_table() -> str:
    rows = ["| code | over HTTP |", "| --- | --- |"]
    return "\n".join(rows + [f"| `{code}` | {status} |" for code, status in HTTP_STATUS.items()])


def _owners(method: Method) -> str:
    if method.is_local:
        return "unix socket only"
    return "yes" if method.is_owned else "no"


def _params(method: Method) -> str:
    fields = msgspec.structs.fields(method.params)
    return ", ".join(f"`{one.encode_name}`{'' if one.required else '?'}" for one in fields) or "none"


def filled(page: str) -> str:
    for name, table in (("methods", methods_table()), ("codes", codes_table())):
        block = f"<!-- begin {name} -->\n\n{table}\n\n<!-- end {name} -->"
        page = re.sub(rf"<!-- begin {name} -->.*?<!-- end {name} -->", lambda _: block, page, flags=re.DOTALL)  # noqa: B023
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
