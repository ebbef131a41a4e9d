"""The chip that a program runs on, and its figures per device."""

from __future__ import annotations

from dataclasses import replace

from ...hardware import Hardware, choose, find, load
from ...hlo import Module, Target
from ...hlo.shardings.devices import device_counts
from ..base.memory_spaces import platform


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


def likely_chips(module: Module, target: Target) -> tuple[str, ...]:
    """Ids of the chips that the program may be for, the most likely first.

    First the chosen chip and the devices' own, then those of the platform that the module shows
    and whose network links as many devices as it has; where the platform is unknown, or is that
    of the development machine, every chip.
    """
    on = platform(module, target)
    replicas, partitions = device_counts(module, target)
    found: dict[str, None] = {}
    for chip in (chip_of(target), choose(target.device_kind, target.platform)):
        if chip is not None and chip.id in load():
            found[chip.id] = None
    for chip in load().values():
        kind = _platform_of(chip)
        wanted = kind == on if on in ("tpu", "gpu") else True
        if wanted and _links_all(chip, replicas * partitions):
            found[chip.id] = None
    return tuple(found)


def _platform_of(chip: Hardware) -> str:
    if chip.id == "cpu":
        return "cpu"
    return "tpu" if any(link.kind == "torus" for link in chip.links) else "gpu"


def _links_all(chip: Hardware, devices: int) -> bool:
    """Whether its first network links that many; a second one links any number of those."""
    near = chip.links[0] if chip.links else None
    return devices <= 1 or (
        near is not None and (len(chip.links) > 1 or not near.group or devices <= near.group)
    )
