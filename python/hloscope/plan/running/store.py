"""Results of candidates on disk, written as they come: what a killed search resumes from.

One SQLite file. A row's key is a digest of everything that decides the result: the function's
jaxpr, shapes, mesh, specs, compiler options, chip, versions. A candidate whose process crashed,
hung or had too little memory is tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

_TABLE = """
CREATE TABLE IF NOT EXISTS candidates (
  key TEXT PRIMARY KEY, written REAL NOT NULL, about TEXT NOT NULL, answer TEXT NOT NULL
)
"""
# Bump when what an answer means changes.
VERSION = 1


class StoreError(ValueError):
    """A store that cannot be used; says which file and why."""


class Store:
    """Answers by key. Several searches, even in several processes, may share a file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=30, check_same_thread=False)
            with self._db:
                self._db.execute(_TABLE)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path} cannot be used as a store: {error}") from None

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer, or None."""
        with self._lock:
            row = self._db.execute("SELECT answer FROM candidates WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        with contextlib.suppress(ValueError):
            found: dict[str, Any] = json.loads(row[0])
            return found if "figures" in found or "error" in found else None
        return None

    def put(self, key: str, about: dict[str, Any], answer: dict[str, Any]) -> None:
        """Keeps an answer, on disk when this returns; unless its process was lost."""
        if answer.get("is_lost"):
            return
        try:
            row = (key, time.time(), json.dumps(about), json.dumps(answer))
            with self._lock, self._db:
                self._db.execute("INSERT OR REPLACE INTO candidates VALUES (?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} takes no more results: {error}") from None

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT COUNT(*) FROM candidates").fetchone()[0])

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._db.close()


def key_of(about: dict[str, Any]) -> str:
    """A digest of plain data, the same in every process."""
    text = json.dumps({"store": VERSION, **about}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
