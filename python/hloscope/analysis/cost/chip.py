"""The chip that a program runs on, and its figures per device."""

from __future__ import annotations

from dataclasses import replace

from ...hardware import Hardware, choose, find
from ...hlo import Target


def chip_of(target: Target) -> Hardware | None:
    """The chip the user chose, else the one of the device kind; None if unknown."""
    if target.hardware:
        return find(target.hardware)
    return choose(target.device_kind, target.platform)


def for_target(hardware: Hardware, target: Target) -> Hardware:
    """The chip's figures per device: in some topologies each core is a device."""
    places = [(d.slice, d.coords) for d in target.devices if d.coords is not None]
    if not places or len(places) != len(target.devices):
        return hardware
    share = len(places) // max(1, len(set(places)))
    if share == hardware.devices_per_chip or share < 1:
        return hardware
    factor = hardware.devices_per_chip / share
    return replace(
        hardware,
        memory_bytes=hardware.memory_bytes * factor,
        memory_bandwidth=hardware.memory_bandwidth * factor,
        matmul={k: v * factor for k, v in hardware.matmul.items()},
        vector=None if hardware.vector is None else hardware.vector * factor,
        host_bandwidth=None
        if hardware.host_bandwidth is None
        else hardware.host_bandwidth * factor,
        links=tuple(
            replace(x, bytes_per_second=x.bytes_per_second * factor) for x in hardware.links
        ),
        devices_per_chip=share,
    )
