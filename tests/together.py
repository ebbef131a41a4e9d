"""Which tests run together on one worker, so that what they share is made once.

xdist asks this of a test's name alone, in a process that collects nothing. Its own groups
(``--dist loadgroup``) are in names that pytest no longer lets it change: without a word, each test
would run wherever there is room.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling


class Together(LoadScopeScheduling):
    """Runs tests of one group on one worker. ``group``: that of a file."""

    def __init__(self, config: Any, log: Any, group: Callable[[Path], str]) -> None:
        super().__init__(config, log)
        self.group, self.root = group, config.rootpath

    def _split_scope(self, nodeid: str) -> str:
        return self.group(self.root / nodeid.partition("::")[0])
