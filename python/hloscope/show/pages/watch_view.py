"""What ``watch`` saw as a ``PlanView`` of js/plan/view.ts: a table and a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...analysis.text.units import duration
from ...hlo.texts.places import short_line
from .page import mimebundle, page

if TYPE_CHECKING:
    from .front_end import Answers

TITLE = "What jax compiled"
LISTED = 2_000
_PARTS = ["tracing", "lowering", "compiling"]


def watch_data(seen: Any) -> dict[str, Any]:
    """The page of a ``Watched``: how much, when, and each compile with what changed."""
    all_of_them = list(seen.compiles)
    shown = all_of_them[:LISTED]
    own = [c for c in seen.everything if c.of_library]
    facts = [
        ["compiles", f"{len(all_of_them):,}"],
        ["compiled again", f"{len(seen.recompiles):,}"],
        ["time", duration(sum(c.seconds for c in all_of_them))],
        ["jax's own small functions", f"{len(own):,}, {duration(sum(c.seconds for c in own))}"],
    ]
    if _asked_cache(seen.compiles):
        hits, misses = seen.cache_hits, seen.cache_misses
        words = "hit" if hits == 1 else "hits", "miss" if misses == 1 else "misses"
        cache = f"{hits:,} {words[0]}, {misses:,} {words[1]}"
        facts.append(["persistent cache", cache])
    sections: list[dict[str, Any]] = [{"type": "facts", "rows": facts}]
    if shown:
        sections += [_timeline(shown), _table(shown, len(all_of_them) - len(shown))]
    return {"title": TITLE, "sections": sections}


def _timeline(shown: list[Any]) -> dict[str, Any]:
    lanes = list(dict.fromkeys(c.function for c in shown))
    spans = []
    for number, c in enumerate(shown):
        # ``at`` is when compiling began; tracing and lowering came before
        at = c.at - c.trace_seconds - c.lower_seconds
        for part, seconds in enumerate((c.trace_seconds, c.lower_seconds, c.compile_seconds)):
            if seconds > 0:
                begin = max(0.0, at)
                spans.append([lanes.index(c.function), begin, at + seconds, part, f"#{number}"])
            at += seconds
    end = max((s[2] for s in spans), default=0.0)
    return {
        "type": "spans",
        "title": "When",
        "note": "Seconds since watching began; a lane a function.",
        "lanes": lanes,
        "parts": _PARTS,
        "seconds": end,
        "spans": spans,
    }


def _asked_cache(compiles: Any) -> bool:
    return any(c.cache for c in compiles)


def _table(shown: list[Any], more: int) -> dict[str, Any]:
    cached = _asked_cache(shown)
    columns: list[dict[str, Any]] = [
        {"name": "compile"}, {"name": "function"}, {"name": "called at"},
        {"name": "tracing", "unit": "s"}, {"name": "lowering", "unit": "s"},
        {"name": "compiling", "unit": "s"},
        *([{"name": "cache"}] if cached else []),
        {"name": "what changed", "wrap": True},
    ]  # fmt: skip
    rows = [
        [
            k, c.function, short_line(c.caller) or "unknown",
            c.trace_seconds, c.lower_seconds, c.compile_seconds,
            *([c.cache or "not asked"] if cached else []),
            f"{c.changed}; cache: {c.cache_why}" if c.cache_why else c.changed,
        ]
        for k, c in enumerate(shown)
    ]  # fmt: skip
    return {
        "type": "table",
        "title": "Compiles",
        "note": "Marked: compiled again. "
        + ("Opening one compiles it once more." if shown else "")
        + (f" {more:,} more are not listed." if more else ""),
        "columns": columns,
        "rows": rows,
        "ids": [k if c.can_open else None for k, c in enumerate(shown)],
        "marked": [k for k, c in enumerate(shown) if c.causes != ("first",)],
        "code": [f"cap = session[{k}].capture()" for k in range(len(shown))],
    }


def answer(seen: Any) -> Answers:
    """Opens a compile as a capture, or the difference of two."""

    def answers(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
        ids = [int(i) for i in values.get("ids", ())]
        if what == "open" and len(ids) == 1:
            return {"html": seen[ids[0]].capture().html()}
        if what == "diff" and len(ids) == 2:
            from ...api.compared import diff

            before, after = (seen[k].capture() for k in ids)
            return {"html": diff(before, after).html()}
        raise ValueError("select one compile to open it, two to compare them")

    return answers


def page_of(seen: Any) -> str:
    """The page of a ``Watched``, as text."""
    return page(TITLE, watch_data(seen), str(seen))


def bundle(seen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(data, metadata) of ``Watched`` in a notebook."""
    return mimebundle(TITLE, watch_data(seen), str(seen), answer(seen))
