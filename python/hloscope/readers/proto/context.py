"""The sources of attribute text: names by id, shared payloads, metadata."""

from __future__ import annotations

from typing import Any

from ...hlo.parts import escape
from .schema import message_class
from .shardings import numbers


class ProtoContext:
    """Everything that attribute text needs beyond the instruction itself."""

    def __init__(self, payloads: Any) -> None:
        self.payloads = payloads
        self.instruction: Any = None  # whose details are written
        self.names: dict[int, str] = {}  # instruction id → name, in the open computation
        self.computations: dict[int, str] = {}  # computation id → name
        self.kinds: dict[int, str] = {}  # instruction id → element type, in the open computation
        self._metadata: dict[bytes, str] = {}
        self._looked = False

    def whole(self) -> Any:
        """The instruction itself, for what is not in its details: what is written with it holds
        for this instruction only."""
        self._looked = True
        return self.instruction

    def first_kind(self) -> str:
        """The element type of the first operand, "" where it is not known."""
        ids = self.whole().operand_ids
        return self.kinds.get(ids[0], "") if ids else ""

    def looked(self) -> bool:
        """Whether ``whole`` was called since this was asked last."""
        before, self._looked = self._looked, False
        return before

    def payload(self, payload: Any) -> bytes:
        if payload.HasField("id") and 0 <= payload.id < len(self.payloads):
            found: bytes = self.payloads[payload.id]
            return found
        value: bytes = payload.value
        return value

    def metadata_of(self, data: bytes) -> str:
        """``metadata={op_name="…" stack_frame_id=3}``; "" where nothing is set."""
        found = self._metadata.get(data)
        if found is None:
            text = metadata_text(message_class("OpMetadata").FromString(data))
            found = self._metadata[data] = "metadata={" + text + "}" if text else ""
        return found


def metadata_text(m: Any) -> str:
    """``op_name="…" stack_frame_id=3`` without braces; "" where nothing is set."""
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
