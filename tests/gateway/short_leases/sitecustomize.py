"""Gives a gateway's processes shorter leases, before anything of Holdfast is read that names them.

So a real lease of a real process lapses within a test. Python imports this file at its start, because
`GatewayHome` puts this directory on the path; everything that is derived from the length of a lease follows.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

from holdfast.core import claim

assert "holdfast.engine.claims.claims" not in sys.modules
claim.DEFAULT_LEASE = timedelta(seconds=float(os.environ["SHORT_LEASE_S"]))
