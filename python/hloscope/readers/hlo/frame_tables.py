"""The FileNames, FunctionNames, FileLocations and StackFrames tables of new HLO text."""

from __future__ import annotations

import re

from ...hlo.parts import FrameTable, unescape
from ...hlo.texts.regex import regex

TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_NAME_ROW = regex(r'(\d{1,9})\s+"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*$', re.S)
_FIELDS_ROW = regex(r"(\d{1,9})\s+\{([^{}]*)\}\s*$")
_FIELD = regex(r"\b([a-z_]++)=(\d{1,9})\b")
_FIELDS = regex(r"(?:\s*+[a-z_]++=\d{1,9}(?![^\s]))*+\s*")


class FrameTableBuilder:
    """Collects rows by id and fills the gaps, since rows may be missing in a cut dump."""

    def __init__(self) -> None:
        self.open = ""
        self.whole = True  # whether all of the row added last could be read
        self.rows: dict[str, dict[int, str]] = {name: {} for name in TABLES}

    @property
    def used(self) -> bool:
        return any(self.rows.values())

    def begin(self, line: str) -> None:
        if line in TABLES:
            self.open, self.whole = line, True

    def add(self, line: str) -> bool:
        """Takes one row of the open table; False when the line is not a row."""
        pattern = _NAME_ROW if self.open.endswith("Names") else _FIELDS_ROW
        m = pattern.match(line)
        if m is None:
            self.open = ""
            return False
        self.rows[self.open][int(m.group(1))] = m.group(2)
        self.whole = pattern is _NAME_ROW or _FIELDS.fullmatch(m.group(2)) is not None
        return True

    def build(self) -> FrameTable:
        locations = []
        for fields in self._numbers("FileLocations"):
            line = fields.get("line", 0)
            locations.append(
                (
                    fields.get("file_name_id", 0),
                    fields.get("function_name_id", 0),
                    line,
                    fields.get("end_line", 0),
                    fields.get("column", 0),
                    fields.get("end_column", 0),
                )
            )
        # XLA prints parent_frame_id one too high: 1 stands for "no parent".
        frames = [
            (f.get("file_location_id", 0), max(0, f.get("parent_frame_id", 0) - 1))
            for f in self._numbers("StackFrames")
        ]
        return FrameTable(
            self._names("FileNames"), self._names("FunctionNames"), tuple(locations), tuple(frames)
        )

    def _ordered(self, table: str) -> list[str]:
        rows = self.rows[table]
        last = max(rows, default=0)
        if last > 2 * len(rows) + 1000:  # ids of a damaged table: keep what is dense
            last = len(rows)
        return [rows.get(i, "") for i in range(1, last + 1)]

    def _names(self, table: str) -> tuple[str, ...]:
        return tuple(unescape(v) for v in self._ordered(table))

    def _numbers(self, table: str) -> list[dict[str, int]]:
        return [{k: int(v) for k, v in _FIELD.findall(row)} for row in self._ordered(table)]
