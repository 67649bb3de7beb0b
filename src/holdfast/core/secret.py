"""Secret: a value that a program names and never holds; only its name is stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.redaction import redact_text

_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


if TYPE_CHECKING:

    class Secret(str):
        """For a type checker it is the text that a step gets in its place."""

        name: str

else:

    class Secret(msgspec.Struct, frozen=True):
        """Stored as a reference, `{"$secret": "NAME"}`. A step that is called with it gets the value instead.

        A task's parameter that takes one is annotated with it.
        """

        name: str = msgspec.field(name="$secret")

        def __repr__(self) -> str:
            return f"<secret {self.name}>"


def secret(name: str) -> Secret:
    """The secret of that name. Its value is looked for when a step needs it, in the process that runs it."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or redact_text(name) != name:
        # The wrong thing may be the value itself, which must not be shown.
        raise BadInput("secret", "the name of a secret is needed, like OPENAI_API_KEY; never its value")
    return Secret(name)
