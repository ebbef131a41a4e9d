"""DOT and SVG: the same tree of groups, opened until the picture is full.

Starts with ENTRY open and keeps opening the biggest closed box while the number of boxes
stays under a limit, so a small program shows every instruction and a big one its layers.
Plumbing (tuples, bitcasts, small copies), constants and parameters get no boxes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..analysis.base.labels.families import FAMILIES
from ..hlo.parts import printable
from .dot_boxes import Box, Picture

if TYPE_CHECKING:
    import graphviz

    from ..api.capture import Capture

MAX_NODES = 60
MAX_LABEL = 200  # characters
_COLORS = {
    "matmul": "#a6cee3",
    "convolution": "#a6cee3",
    "collective": "#fdbf6f",
    "control_flow": "#cab2d6",
    "custom_call": "#fb9a99",
    "linear_algebra": "#b2df8a",
    "reduction": "#d9f0d3",
    "fusion": "#eef3ea",
    "transfer": "#ffffb3",
}


class DotMissing(RuntimeError):
    """The ``dot`` program is not installed; DOT text still works."""


class DotFailed(RuntimeError):
    """``dot`` ended without a picture; the message includes its own."""


def digraph(
    capture: Capture, *, max_nodes: int = MAX_NODES, open: Collection[str] = ()
) -> graphviz.Digraph:
    """The grouped graph as a ``graphviz.Digraph``; ``.source`` is DOT text.

    ``max_nodes`` bounds the boxes drawn. ``open`` names groups, folds or instructions to
    open whatever the limit: ``open=["layer_[0..23]", "while.3"]``.
    """
    import graphviz

    picture = Picture(capture, max_nodes, frozenset(open))
    graph = graphviz.Digraph(
        graphviz.escape(_cut(capture.title)),
        graph_attr={
            "rankdir": "TB",
            "fontname": "sans-serif",
            "label": graphviz.escape(_cut(capture.title)),
            "labelloc": "t",
            "newrank": "true",
        },
        node_attr={
            "shape": "box",
            "style": "filled,rounded",
            "fillcolor": "#f7f7f7",
            "fontname": "sans-serif",
            "fontsize": "11",
            "height": "0.3",
        },
        edge_attr={"arrowsize": "0.6", "color": "#555555"},
    )
    _draw(graph, picture)
    return graph


def svg(capture: Capture, *, max_nodes: int = MAX_NODES, open: Collection[str] = ()) -> str:
    """The picture as SVG text.

    Raises ``DotMissing`` if there is no ``dot`` program, ``DotFailed`` with its message
    where it gives up.
    """
    import graphviz

    graph = digraph(capture, max_nodes=max_nodes, open=open)
    try:
        # not graph.pipe: it writes line by line, and a dot that ends early is a broken pipe
        raw = graphviz.pipe("dot", "svg", graph.source.encode(), quiet=True)
    except graphviz.CalledProcessError as error:
        said = printable(" ".join(bytes(error.stderr or b"").decode(errors="replace").split()))
        why = said[:300] or "it gives no reason"
        raise DotFailed(f"dot ended with status {error.returncode}: {why}") from error
    except graphviz.ExecutableNotFound as error:
        raise DotMissing(
            "SVG needs the `dot` program of Graphviz: install it "
            "(apt install graphviz, brew install graphviz) or use the DOT text instead."
        ) from error
    return str(raw.decode("utf-8"))


def _draw(graph: graphviz.Digraph, picture: Picture) -> None:
    _cluster(graph, picture, picture.root)
    for (a, b), count in sorted(picture.edges().items()):
        width = {"penwidth": f"{min(5.0, 1 + count / 8):.1f}"} if count > 1 else {}
        graph.edge(a, b, **width)


def _cluster(graph: graphviz.Digraph, picture: Picture, box: Box) -> None:
    import graphviz

    for inner in box.inside:
        if not inner.opened:
            _node(graph, picture, inner)
            continue
        times = f" ×{inner.count}" if inner.count > 1 else ""
        name = f"cluster_{inner.id}"
        title = graphviz.escape(_cut(inner.label) + times)
        style = {"label": title, "style": "rounded", "color": "#999999", "fontsize": "12"}
        with graph.subgraph(name=name, graph_attr=style) as inside:
            _cluster(inside, picture, inner)
            if not inner.inside:
                inside.node(f"{inner.id}_empty", label="…")


def _node(graph: graphviz.Digraph, picture: Picture, box: Box) -> None:
    import graphviz

    label = _cut(box.label)
    if box.count > 1:
        label += f" ×{box.count}"
    extra: dict[str, str] = {}
    if box.instruction >= 0:
        instr = picture.instructions[box.instruction]
        family = FAMILIES[picture.family[box.instruction]]
        extra["fillcolor"] = _COLORS.get(family.id, "#f7f7f7")
        extra["tooltip"] = graphviz.escape(
            _cut(f"%{instr.name} = {instr.shape.dense_text} {instr.opcode}", 1000)
        )
    else:
        label += f"\n{box.size:,} instructions"
        extra |= {"style": "filled", "fillcolor": "#e6e6f0", "peripheries": "2"}
    graph.node(box.id, label=_lines(label), **extra)


def _cut(text: str, most: int = MAX_LABEL) -> str:
    """Safe to print, and short: dot refuses strings over 16 kB."""
    text = printable(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _lines(label: str) -> str:
    """Escapes DOT's backslashes in each line; line breaks are kept.

    ``nohtml`` because a label from < to > would otherwise be read as HTML.
    """
    import graphviz

    escaped = "\\n".join(graphviz.escape(part) for part in label.split("\n"))
    text: str = graphviz.nohtml(escaped)
    return text
