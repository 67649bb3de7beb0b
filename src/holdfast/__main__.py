"""`python -m holdfast`."""

from __future__ import annotations

import sys

from holdfast.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
