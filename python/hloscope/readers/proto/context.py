"""The sources of attribute text: names by id, shared payloads, metadata."""

from __future__ import annotations

from typing import Any

from ...hlo.parts import escape
from .shardings import numbers


class ProtoContext:
    """Everything that attribute text needs beyond the instruction itself."""

    def __init__(self, payloads: Any) -> None:
        self.payloads = payloads
        self.names: dict[int, str] = {}  # instruction id → name, in the open computation
        self.computations: dict[int, str] = {}  # computation id → name
        self.kinds: dict[int, str] = {}  # instruction id → element type, in the open computation
        self._metadata: dict[bytes, str] = {}

    def payload(self, payload: Any) -> bytes:
        if payload.HasField("id") and 0 <= payload.id < len(self.payloads):
            found: bytes = self.payloads[payload.id]
            return found
        value: bytes = payload.value
        return value

    def metadata(self, m: Any) -> str:
        """``op_name="…" stack_frame_id=3`` without the braces; '' when nothing is set."""
        key: bytes = m.SerializeToString()
        found = self._metadata.get(key)
        if found is None:
            found = self._metadata[key] = _metadata_text(m)
        return found


def _metadata_text(m: Any) -> str:
    parts = []
    for name in ("op_type", "op_name", "source_file"):
        value = getattr(m, name)
        if value:
            parts.append(f'{name}="{escape(value)}"')
    for name in ("source_line", "source_end_line", "source_column", "source_end_column"):
        value = getattr(m, name)
        if value:
            parts.append(f"{name}={value}")
    if m.profile_type:
        parts.append("profile_type={" + numbers(m.profile_type) + "}")
    if m.deduplicated_name:
        parts.append(f'deduplicated_name="{escape(m.deduplicated_name)}"')
    if m.scheduling_name:
        parts.append(f'scheduling_name="{escape(m.scheduling_name)}"')
    if m.stack_frame_id:
        parts.append(f"stack_frame_id={m.stack_frame_id}")
    return " ".join(parts)


def text_of(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")
