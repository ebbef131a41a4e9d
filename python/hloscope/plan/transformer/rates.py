"""How fast a device is, for analytic models: from the hardware file, or given."""

from __future__ import annotations

from dataclasses import dataclass

from ...hardware import Hardware, find


@dataclass(frozen=True, slots=True)
class Rates:
    """FLOP/s, bytes/s and bytes of one device.

    ``links`` are ``(devices, bytes/s)``, nearest first: a collective of up to that many devices
    runs at that rate; 0 is any number. ``vector`` is None if it is not published: layers off
    the matrix unit then take their memory time.
    """

    label: str
    matmul: float
    vector: float | None
    memory_bandwidth: float
    links: tuple[tuple[int, float], ...]
    memory_bytes: float | None = None

    def link(self, devices: int) -> float | None:
        """Bytes/s of a collective of that many devices; None when no link reaches them."""
        for group, rate in self.links:
            if not group or devices <= group:
                return rate
        return None


def rates(chip: str | Hardware | Rates, dtype: str = "bf16") -> Rates:
    """``Rates`` of a chip by its id; what is ``Rates`` already is returned unchanged.

    A torus sends both ways round one axis: two links. Raises ``HardwareError`` for an unknown
    chip, ``ValueError`` for one whose rate for ``dtype`` is not in the file.
    """
    if isinstance(chip, Rates):
        return chip
    found = find(chip)
    matmul = found.matmul_rate(dtype)
    if matmul is None:
        known = ", ".join(found.matmul)
        raise ValueError(f"{found.label} has no rate for {dtype}; it has {known}")
    links = tuple(
        (k.group, k.bytes_per_second * (2 if k.kind == "torus" else max(1, k.links)))
        for k in found.links
    )
    return Rates(
        found.label, matmul, found.vector, found.memory_bandwidth, links, found.memory_bytes
    )
