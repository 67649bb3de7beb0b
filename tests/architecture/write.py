"""Writes the generated parts of docs/ anew: `make docs`."""

from __future__ import annotations

from tests.architecture.pages import GENERATED
from tests.architecture.source import ROOT


def main() -> None:
    for path, make in GENERATED.items():
        content = make()
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
