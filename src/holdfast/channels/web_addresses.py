"""The forms in which apprise may know a web address: its own, and that of a webhook."""

from __future__ import annotations

from collections.abc import Sequence

# A plain web address is a webhook: it gets the message as JSON.
_WEBHOOKS = {"https://": "jsons://", "http://": "json://"}


def forms_of(url: str) -> Sequence[str]:
    """The URLs to try: apprise knows some web addresses itself; every other one is a webhook."""
    plain = next((form for form in _WEBHOOKS if url.lower().startswith(form)), None)
    return [url] if plain is None else [url, _WEBHOOKS[plain] + url[len(plain) :]]
