"""Secret: a reference by name to a secret value; only the name is stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.redaction import redact_text

_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_REFERENCE = "$secret"
# The prefix of environment variables for programs; other HOLDFAST_ variables belong to the process itself.
_GIVEN_PREFIX = "HOLDFAST_SECRET_"
_OWN_PREFIX = "HOLDFAST_"
_OWN_NAMES = frozenset({"PGPASSWORD", "PGPASSFILE"})


if TYPE_CHECKING:

    class Secret(str):
        """To a type checker it is the text that a step gets in its place."""

        name: str

else:

    class Secret(msgspec.Struct, frozen=True):
        """Stored as a reference, `{"$secret": "NAME"}`. A step that is called with it gets the value instead.

        Annotate a task's parameter with it if the parameter takes a secret.
        """

        name: str = msgspec.field(name=_REFERENCE)

        def __repr__(self) -> str:
            return f"<secret {self.name}>"


def secret(name: str) -> Secret:
    """A reference to the secret of that name. The process that runs a step looks up the value for it."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or redact_text(name) != name:
        # The wrong argument may be the secret value itself, so do not show it.
        raise BadInput("secret", "the name of a secret is needed, like OPENAI_API_KEY, never its value")
    return Secret(name)


def is_own_variable(name: str) -> bool:
    """Whether an environment variable belongs to the process itself, such as its token or its key: programs
    do not get its value."""
    if name.startswith(_OWN_PREFIX):
        return not name.startswith(_GIVEN_PREFIX)
    return name in _OWN_NAMES


def refuse_references(field: str, value: Any) -> None:
    """Raises BadInput when a value from outside holds `{"$secret": …}` anywhere.

    A program may name a secret, a caller may not. Stored references look the same, so a caller's is refused.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if _REFERENCE in one:
                why = (
                    'it holds {"$secret": …}, and only a program may name a secret; '
                    'let the task itself call hf.secret("NAME")'
                )
                raise BadInput(field, why)
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one
        elif type(one) is Secret:
            refuse_references(field, {_REFERENCE: one.name})
