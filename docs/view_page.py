"""mkdocs' hook that adds the tables of columns and headers to view.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import view_contract


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    return f"{markdown}\n{view_contract.page()}" if page.file.src_uri == "view.md" else markdown
