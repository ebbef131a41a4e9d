"""The blocks of js/view.ts that hosts send for a capture, gzip'd; each is made once.

They are kept as long as the capture, and made again when its figures change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from ..analysis.cost.chip import chip_of, likely_chips
from ..analysis.provenance.fates.fates import fates
from ..analysis.provenance.linked.linked import Linked, linked
from ..api.capture import STAGES, Capture, kept_passes
from ..view import OtherChips, build_analyses, build_for_chip, build_stages, build_text, build_view
from ..view.context import Given
from ..view.sections.findings import as_in_the_view

# A chip's figures of 18,000 instructions take 85 ms: those in a page take about a second at most.
CHIPS_TIMES_INSTRUCTIONS = 200_000

# capture → block → what it was made for, and its bytes
_made: WeakKeyDictionary[Capture, dict[str, tuple[int, bytes]]] = WeakKeyDictionary()


def view(capture: Capture) -> bytes:
    """The View block: the graph."""

    def make() -> bytes:
        return build_view(
            capture.module, capture.target, title=capture.title, subtitle=_subtitle(capture)
        )

    return _once(capture, "view", make)


def analyses(capture: Capture) -> bytes:
    """The analyses block: cost, memory, collectives, findings and the like."""
    return _once(
        capture,
        "analyses",
        lambda: build_analyses(capture.module, capture.target, given=given(capture)),
    )


def for_chip(capture: Capture, chip: str) -> bytes:
    """What the analyses say instead on that chip. Raises ``HardwareError`` for an unknown one."""
    return _once(
        capture,
        f"chip {chip}",
        lambda: build_for_chip(capture.module, capture.target, chip, given(capture)),
    )


def chips(capture: Capture, most_bytes: float) -> dict[str, bytes]:
    """Blocks of the chips that the program may be for, by id, the most likely first.

    As many as fit into ``most_bytes``, and into ``CHIPS_TIMES_INSTRUCTIONS``.
    """
    module, target = capture.module, capture.target
    if module.dialect != "hlo" or module.entry is None:
        return {}
    own = chip_of(target)
    analyses(capture)  # before those of chips: what it works out is what they are compared with
    others: OtherChips | None = None
    found: dict[str, bytes] = {}
    room = most_bytes
    most = CHIPS_TIMES_INSTRUCTIONS // max(1, len(module.instructions))
    for chip in likely_chips(module, target):
        if own is not None and chip == own.id:
            continue
        if len(found) >= most:
            break
        if is_made(capture, f"chip {chip}"):
            made = for_chip(capture, chip)
        else:
            others = others or OtherChips(module, target, given(capture))
            made = _once(capture, f"chip {chip}", partial(others.on, chip))
        room -= len(made)
        if room < 0:
            break
        found[chip] = made
    return found


def given(capture: Capture) -> Given:
    """What a person gave the capture."""
    return Given(capture.for_hosts.measured, capture.for_hosts.own_values, capture.for_hosts.proofs)


def findings(capture: Capture) -> Any:
    """The findings as the analyses block has them, with proofs."""
    return as_in_the_view(capture.findings)


def text(capture: Capture) -> bytes:
    """The text block."""
    return _once(capture, "text", lambda: build_text(capture.module))


def stages(capture: Capture) -> bytes:
    """The stages block: the program's texts, and which lines correspond.

    Of passes it holds those that need no compile.
    """
    return _once(
        capture,
        "stages",
        lambda: build_stages(linked_stages(capture), len(capture.module.instructions)),
    )


def passes(capture: Capture, progress: Callable[[int, int], None] | None = None) -> bytes:
    """The passes block. ``progress`` may raise to stop.

    Raises what ``Capture.passes`` raises, and ``ValueError`` if it would be too large.
    """
    from ..view.passes import build_passes

    return build_passes(
        capture.passes(),
        capture.module,
        capture.target,
        title=capture.title,
        shown=shown_pass(capture),
        progress=progress,
    )


def shown_pass(capture: Capture) -> int | None:
    """The row of the passes that this module belongs to; None for the final module."""
    record = capture.for_hosts.record
    number = None if record is None else record.number
    return None if number is None else capture.passes().at(number)


def linked_stages(capture: Capture) -> Linked:
    """Source, jaxpr, StableHLO and this module, line by line.

    Of passes it uses only those that need no compile.
    """
    module, stage = capture.module, capture.stage
    earlier = STAGES[: STAGES.index(stage)] if stage in STAGES else ()
    made = {s: capture.at(s).module for s in earlier if s in capture.stages and s != "hlo"}
    known = None
    if module.origins is not None and module.dialect == "hlo":
        known = fates(module, kept_passes(capture), made.get("stablehlo"))
    return linked(
        module,
        stage,
        jaxpr=made.get("jaxpr"),
        stablehlo=made.get("stablehlo"),
        sources=capture.target.sources,
        fates=known,
    )


# Those that a front end asks for by name.
BLOCKS: dict[str, Callable[[Capture], bytes]] = {
    "text": text,
    "analyses": analyses,
    "stages": stages,
}


def is_made(capture: Capture, block: str) -> bool:
    """Whether a block is there and its figures have not changed since."""
    found = _made.get(capture, {}).get(block)
    return found is not None and found[0] == _version(capture, block)


def _once(capture: Capture, block: str, make: Callable[[], bytes]) -> bytes:
    kept = _made.setdefault(capture, {})
    if not is_made(capture, block):
        kept[block] = _version(capture, block), make()
    return kept[block][1]


def _version(capture: Capture, block: str) -> int:
    if block == "analyses" or block.startswith("chip "):
        return capture.for_hosts.revision
    # its sentences name passes where they are known
    return int(capture.for_hosts.is_answered("passes")) if block == "stages" else 0


def _subtitle(capture: Capture) -> str:
    target = capture.target
    parts = [f"{len(target.devices)} × {target.device_kind}"] if target.devices else []
    return " · ".join([*parts, *filter(None, [capture.file]), capture.stage])
