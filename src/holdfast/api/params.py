"""The base class and the common types of method parameters."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from holdfast.core.payload import MAX_NAME_CHARS

MAX_TEXT_CHARS = 4000
MAX_PAGE = 1000
_MAX_NAMED_CHARS = 100

# A full id or a unique prefix.
IdText: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[a-z0-9_-]{1,64}$", max_length=64)]
# A task: by its id, a unique prefix of that, a run id, a key or a session key.
TargetText: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
NameText: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
KeyText: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[ -~]+$", min_length=1, max_length=128)]
TokenName: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", max_length=64)]
ShortText: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]
PageSize: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]
PageToken: TypeAlias = Annotated[str, msgspec.Meta(max_length=512)]


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Parameters in camelCase; unknown ones are refused."""


class Nothing(Params, frozen=True, kw_only=True):
    """No parameters."""


def credited(named: str | None, caller: str) -> str:
    """The name for the audit log: the authenticated caller, and the person that the caller names."""
    if named is None or named == caller:
        return caller
    return f"{named[:_MAX_NAMED_CHARS]} (said {caller[:_MAX_NAMED_CHARS]})"[:MAX_NAME_CHARS]
