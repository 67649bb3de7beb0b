"""A gateway over the ledger of the demo, so that a person can look at its dashboard."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlencode

import msgspec

from holdfast.app import Settings
from holdfast.config import HOME_VARIABLE, STORE_VARIABLE
from holdfast.views.up import UpView

END_TIMEOUT_S = 20.0


@contextlib.contextmanager
def dashboard_link(settings: Settings, *, page: str) -> Iterator[str | None]:
    """The link to this page of the dashboard of a gateway that runs as long as the block; None if the gateway
    cannot start."""
    # The URL may hold a password, and every user of the machine can read a command line.
    environ = os.environ | {HOME_VARIABLE: str(settings.home), STORE_VARIABLE: settings.store.url}
    gateway = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast", "up", "--json", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ,
        start_new_session=True,  # Ctrl-C goes to the demo, which stops the gateway
    )
    try:
        assert gateway.stdout is not None
        line = gateway.stdout.readline()
        link = msgspec.json.decode(line, type=UpView).dashboard if line else None
        yield None if link is None else link.replace("#", f"?{urlencode({'next': page})}#", 1)
    finally:
        gateway.send_signal(signal.SIGTERM)
        try:
            gateway.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            gateway.kill()
        gateway.communicate()
