"""README for PyPI: relative links become links into the repository.

In the repository they stay relative, so that they and the pictures work in every clone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)\s]+)\)")


def absolute(text: str, home: str) -> str:
    """Make relative links absolute, in the repository at ``home``; pictures link to raw files."""
    raw = home.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def one(m: re.Match[str]) -> str:
        base = f"{raw}/main" if m[1] else f"{home}/blob/main"
        return f"{m[1]}{m[2]}({base}/{m[3]})"

    return _LINK.sub(one, text)


class Readme(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        home = metadata["urls"]["Homepage"]
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, home)}
