"""Whether the boxes of first pictures hold what their names say, by an oracle apart from grouping.

    python benchmarks/picture_truth.py FOLDER …

The oracle reads each instruction's own metadata and the person's file: the functions and classes of
its Python stack, the words of the calls on those lines (by an AST of the file), the scopes of its
op_name. A visible box is *false* if less than 70 % of its FLOPs (of its instructions, where it has
none) belong to what its name says. *Majors* are functions of the person's with over 10 % of the
FLOPs that no group is named after. A fold is *unequal* if its members' products come from other
functions or differ in number by more than half, *apart* if others' products run between them.
"cover" is the share of the pane that the picture fills at 1500×1000. ``--false`` lists boxes.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "benchmarks"), str(REPO / "benchmarks" / "front")]

TRUE = 0.7
MAJOR = 0.1
UNEQUAL = 1.5
SUFFIXES = (".hlo", ".hlo.gz", ".txt")
# Words that name a kind of box or an operation, not a part of somebody's program.
NEUTRAL = frozenset(
    """layer block body branch true false inputs outputs between recomputed small operations
    sharded computation call condition section run runs while loop unnamed""".split()
)
_LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<frozen |^<string>$"
)
# Code, whose words are not all of what it names, and what XLA calls computations.
_NO_NAME = re.compile(r"[(=*/@]| [-+] |computation|^main\.\d")
_NUMBER = re.compile(r"\d+")
_SILENT = frozenset("parameter constant tuple get-tuple-element iota bitcast".split())


@lru_cache(maxsize=256)
def words_of_lines(file: str) -> dict[int, frozenset[str]]:
    """Names that occur in the statement on each line: what is called there, and with what."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    out: dict[int, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and hasattr(node, "lineno"):
            name = ""
            if isinstance(node, ast.Name):
                name = node.id
            elif isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value
            if name:
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    out[line].add(name)
    return {line: frozenset(names) for line, names in out.items()}


def clean(word: str) -> str:
    return _NUMBER.sub("", word).strip(" _./").lower()


class Oracle:
    """What is true of each instruction, from its own metadata alone."""

    def __init__(self, module: Any, flops: dict[int, float]) -> None:
        self.module, self.flops = module, flops
        frames, ids = module.source_frames()
        stacks: dict[int, tuple[frozenset[str], frozenset[str], bool, bool]] = {}
        jitted = module.name.removeprefix("jit_")
        whole = any(f.function == jitted for k in set(ids) for f in frames.stack(k))
        entry = module.entry.parameters if module.entry is not None else ()
        given = " ".join(p.metadata.op_name for p in entry if p.metadata)
        self.arguments = {clean(w) for w in re.findall(r"[A-Za-z_]\w*", given)}
        self.names: list[frozenset[str]] = []
        self.functions: list[frozenset[str]] = []
        self.passes: list[str] = []
        self.pieces: list[bool] = []  # jax evaluated a trace elsewhere: callers are missing
        for i in module.instructions:
            frame = ids[i.index]
            if frame not in stacks:
                stack = frames.stack(frame)
                cut = whole and bool(stack) and not any(f.function == jitted for f in stack)
                stacks[frame] = (*self._of_stack(() if cut else stack), cut)
            names, functions, update, cut = stacks[frame]
            op = i.metadata.op_name if i.metadata else ""
            scopes = {clean(w) for w in re.split(r"[/()]", op)}
            self.names.append(names | scopes | {clean(i.opcode)})
            self.functions.append(functions)
            self.pieces.append(cut)
            self.passes.append(
                "backward" if "transpose(" in op else "forward" if "jvp(" in op
                else "optimizer" if update else ""
            )  # fmt: skip

    @staticmethod
    def _of_stack(stack: Any) -> tuple[frozenset[str], frozenset[str], bool]:
        names: set[str] = set()
        functions: set[str] = set()
        update = False
        for f in stack:
            parts = (f.function or "").rpartition("<locals>.")[2].split(".")
            names |= {clean(p) for p in re.split(r"[.<>]+", f.function or "")}
            names.add(clean(".".join(parts)))
            if _LIBRARY.search(f.file):
                update = update or ("/optax/" in f.file and "/losses/" not in f.file)
                continue
            if parts and not parts[-1].startswith("<"):
                functions.add(parts[0] if parts[-1] == "__call__" else parts[-1])
            names |= {clean(w) for w in words_of_lines(f.file).get(f.line, ())}
        return frozenset(names), frozenset(functions), update

    def known(self, row: int) -> bool:
        i = self.module.instructions[row]
        named = i.metadata is not None and "/" in i.metadata.op_name and not self.pieces[row]
        return i.opcode not in _SILENT and bool(self.functions[row] or named)

    def holds(self, row: int, word: str) -> bool:
        if word in ("forward", "backward", "optimizer"):
            mine = self.passes[row]
            if word in self.names[row]:
                return True
            return mine == word or (word == "optimizer" and mine == "") or (
                word == "forward" and mine == ""
            )  # fmt: skip
        said = self.arguments | NEUTRAL  # arguments say which weights, not whose code
        parts = [p for p in word.split() if p not in said]
        names = self.names[row]
        found = [any(p == n or (len(p) > 3 and p in n) for n in names) for p in (word, *parts)]
        return found[0] or all(found[1:])


def words_of(label: str) -> list[str]:
    """The names in a label: "Layer [1..5]: MLA, MoE" is Layer; "forward · loss_fn" is both."""
    if "[" in label and "f32" in label:
        return []
    main = label.partition(": ")[0]
    main = main.removesuffix(", outside its loop").replace("parameter update", "optimizer")
    main = re.sub(r"\[[^\]]*\]|×[\d,]+|, line [\d:]+| before \w+|\(.*?\)|#\d+", " ", main)
    parts = re.split(r" · |/|, | \+ ", main)
    if "·" in main.replace(" · ", ""):  # operations
        return []
    found = [clean(p) for p in parts]
    return [w for w in found if len(w) > 1 and not set(w.split()) <= NEUTRAL]


def _above(tree: Any, group: int) -> int:
    """The group around a group, or −1."""
    owner = int(tree.owner[group])
    return int(tree.group[owner]) if owner >= 0 else int(tree.parent[group])


def paths(tree: Any, labels: list[str]) -> list[str]:
    """The labels from the root to each group."""
    out: list[str] = []
    for g, label in enumerate(labels):
        above = _above(tree, g)
        out.append(f"{out[above]} > {label}" if 0 <= above < g else label)
    return out


def _means(word: str, function: str) -> bool:
    """Whether a word names a function: "block" of ``block_3`` also its class ``ConvNeXtBlock``."""
    return function in (word, *word.split()) or (len(word) > 3 and word in function)


def truth_of_names(oracle: Oracle, tree: Any, labels: list[str]) -> dict[str, float]:
    """How much the names of the groups around instructions tell, in thousandths.

    "calls": of the person's functions above an instruction, those that a group around it is named
    after. "true": instructions that each group around them says something true of. Both also by
    FLOPs. The functions of nearly all instructions are the program, which needs no name.
    """
    words: list[frozenset[str]] = []
    for g, label in enumerate(labels):
        above = _above(tree, g)
        said = frozenset() if _NO_NAME.search(label) or not g else frozenset(words_of(label))
        if "optimizer" in said:  # which one is said once, not by each of its operations
            said = frozenset(["optimizer"])
        words.append(said | words[above] if 0 <= above < g else said)
    group = tree.group.tolist()
    rows = [r for r in range(len(group)) if oracle.known(r) and oracle.functions[r]]
    often = Counter(f for r in rows for f in oracle.functions[r])
    whole = {f for f, n in often.items() if n > 0.97 * len(rows)}
    out: dict[str, float] = {}
    for suffix in ("", " by FLOPs"):
        calls = told = true = everything = 0.0
        for r in rows:
            weight = oracle.flops.get(r, 0.0) if suffix else 1.0
            if not weight:
                continue
            said = words[group[r]]
            everything += weight
            true += weight * all(oracle.holds(r, w) for w in said)
            mine = [clean(f) for f in oracle.functions[r] - whole]
            if mine:
                calls += weight
                named = sum(any(_means(w, f) for w in said) for f in mine)
                told += weight * named / len(mine)
        out[f"calls{suffix}"] = 1000 * told / calls if calls else 1000.0
        out[f"true{suffix}"] = 1000 * true / everything if everything else 1000.0
    return out


class Picture:
    """One program's first picture and its truth."""

    def __init__(self, name: str, capture: Any) -> None:
        from hloscope.analysis.grouping.folds import folds
        from hloscope.analysis.grouping.groups import group_tree

        self.name, self.module = name, capture.module
        self.tree = group_tree(self.module, capture.target)
        self.folds = folds(self.module, self.tree)
        self.flops = {
            r.instruction.index: r.flops
            for r in capture.cost()
            if r.flops is not None and r.flops == r.flops and r.flops > 0
        }
        self.oracle = Oracle(self.module, self.flops)
        self.total = sum(self.flops.values())
        inside: dict[int, list[int]] = defaultdict(list)
        for row, g in enumerate(self.tree.group.tolist()):
            inside[g].append(row)
        self.rows = inside
        self.below: dict[int, list[int]] = defaultdict(list)
        owner = self.tree.owner.tolist()
        for g, p in enumerate(self.tree.parent.tolist()):
            above = int(self.tree.group[owner[g]]) if owner[g] >= 0 else p
            if above >= 0 and g:
                self.below[above].append(g)

    def all_rows(self, groups: list[int]) -> list[int]:
        out, left = [], list(groups)
        while left:
            g = left.pop()
            out += self.rows[g]
            left += self.below[g]
        return out

    def share(self, label: str, rows: list[int]) -> tuple[float, float]:
        """The share of a box that belongs to its name, and its share of all FLOPs."""
        words = words_of(label)
        heavy = [(r, self.flops[r]) for r in rows if r in self.flops and self.oracle.known(r)]
        work = sum(w for _, w in heavy)
        if not words:
            return 1.0, work / (self.total or 1)
        if work < 0.002 * self.total or not work:
            heavy = [(r, 1.0) for r in rows if self.oracle.known(r) and self.oracle.functions[r]]
        whole = sum(w for _, w in heavy)
        if not whole:
            return 1.0, 0.0
        if words[0] == "optimizer":  # which one is said once, not by each of its operations
            words = words[:1]
        mine = sum(w for r, w in heavy if all(self.oracle.holds(r, x) for x in words))
        return mine / whole, work / (self.total or 1)

    def judge(self, items: list[dict[str, Any]]) -> list[str]:
        out = []
        for item in items:
            rows = self.all_rows(item["groups"])
            if not item["groups"]:
                continue
            if (
                "instruction" in item
                and self.module.instructions[item["instruction"]].opcode != "while"
            ):
                continue  # an operation's box says which operation it is
            if "instruction" not in item and self._is_component(item["groups"][0]):
                continue  # and so does one of several
            true, work = self.share(item["label"], rows)
            if true < TRUE:
                out.append(f"{item['label']!r}: {true:.0%} true, {work:.0%} of FLOPs")
        return out

    def _is_component(self, group: int) -> bool:
        from hloscope.analysis.grouping.groups import KINDS

        return KINDS[int(self.tree.kind[group])] == "component"

    def majors(self) -> list[str]:
        """Functions of over a tenth of the work after which no group is named."""
        work: Counter[str] = Counter()
        of: dict[str, set[int]] = defaultdict(set)
        for row, w in self.flops.items():
            for f in self.oracle.functions[row]:
                work[f] += w
                of[f].add(row)
        held = self._held()
        known = sum(w for r, w in self.flops.items() if self.oracle.functions[r])
        out = []
        for f, w in work.items():
            if not MAJOR * known <= w <= 0.97 * known:  # the program itself is no part of it
                continue
            if sum(self.flops[r] for r in of[f] & held.get(f, set())) < TRUE * w:
                out.append(f"{f} ({w / self.total:.0%})")
        return out

    def _held(self) -> dict[str, set[int]]:
        """For each function the rows in groups that are (nearly) all its own and truly named."""
        out: dict[str, set[int]] = defaultdict(set)
        for g in range(len(self.tree.parent)):
            rows = [r for r in self.all_rows([g]) if r in self.flops]
            if not rows:
                continue
            whole = sum(self.flops[r] for r in rows)
            mine: Counter[str] = Counter()
            for r in rows:
                for f in self.oracle.functions[r]:
                    mine[f] += self.flops[r]
            pure = [f for f, w in mine.items() if w >= 0.9 * whole]
            if pure and self.share(self.tree.label[g], rows)[0] >= TRUE:
                for f in pure:
                    out[f].update(rows)
        return out

    def _is_product(self, row: int) -> bool:
        """Products in fusions count too: there XLA's FLOPs are those of the fusion."""
        opcode = self.module.instructions[row].opcode
        return opcode in _PRODUCTS or (opcode == "custom-call" and row in self.flops)

    def bad_folds(self) -> tuple[list[str], list[str]]:
        unequal, apart = [], []
        for fold in self.folds.folds:
            kinds, counts = [], []
            for g in fold.members:
                rows = [r for r in self.all_rows([g]) if self._is_product(r)]
                counts.append(len(rows))
                kinds.append(frozenset(f for r in rows for f in self.oracle.functions[r]))
            if not any(counts):
                continue
            if max(counts) > UNEQUAL * max(1, min(counts)):
                unequal.append(f"{fold.label} {counts}")
            kinds = [k for k in kinds if k]  # frames may be lost in fusions
            if len(set(kinds)) > 1 and max(counts) <= UNEQUAL * max(1, min(counts)):
                common = frozenset.intersection(*kinds)
                odd = sum(len(k - common) > 1 for k in kinds)
                if odd and odd < len(kinds):
                    unequal.append(f"{fold.label} by functions")
        return unequal, apart


_PRODUCTS = frozenset(["dot", "convolution", "ragged-dot"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--false", action="store_true", help="list what is false")
    options = parser.parse_args()
    import hloscope as hs
    from hloscope.show import blocks
    from run import bundle

    files = sorted(
        p for f in options.folder
        for p in ([f] if f.is_file() else f.iterdir()) if p.name.endswith(SUFFIXES)
    )  # fmt: skip
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "first_picture.mjs"
        bundle(REPO / "benchmarks" / "front" / "first_picture.ts", script, "--platform=node",
               "--format=esm")  # fmt: skip
        pictures: list[Picture] = []
        views = []
        for k, file in enumerate(files):
            try:
                capture = hs.read(file)
            except hs.ReadError:
                continue
            if getattr(capture, "module", None) is None or capture.module.dialect != "hlo":
                continue
            view = Path(folder) / f"{k}.view"
            view.write_bytes(blocks.view(capture))
            views.append(str(view))
            pictures.append(Picture(file.name, capture))
        out = subprocess.run(["node", str(script), *views], capture_output=True, text=True)
        shown = [json.loads(line)[0] for line in out.stdout.splitlines()]
    if out.returncode or len(shown) != len(pictures):
        sys.exit(out.stderr[-2000:])
    print(f"{'':40} {'boxes':>5} {'false':>5} {'majors':>6} {'folds':>5} {'cover':>6} {'text':>5}")
    boxes = 0
    for picture, s in zip(pictures, shown, strict=True):
        false = picture.judge(s["items"])
        missing = picture.majors()
        unequal, apart = picture.bad_folds()
        named = [i for i in s["items"] if i["groups"]]
        boxes += len(named)
        rows.append((len(false), len(missing), len(unequal) + len(apart), s["cover"]))
        print(f"{picture.name[:40]:40} {s['boxes']:>5} {len(false):>5} {len(missing):>6} "
              f"{len(unequal) + len(apart):>5} {s['cover']:>6.0%} {s['text']:>5.1f}")  # fmt: skip
        if options.false:
            for kind, texts in (("false", false), ("major", missing), ("unequal", unequal),
                                ("apart", apart)):  # fmt: skip
                for text in texts:
                    print(f"      {kind}: {text}")
    n = len(rows)
    if not n:
        sys.exit("no dumps there")
    print(f"\n{n} pictures, {boxes} named boxes: {sum(r[0] for r in rows)} false "
          f"({sum(r[0] for r in rows) / max(1, boxes):.1%}); majors named nowhere in "
          f"{sum(r[1] > 0 for r in rows)} programs ({sum(r[1] for r in rows)}); bad folds "
          f"{sum(r[2] for r in rows)}; median cover "
          f"{statistics.median(r[3] for r in rows):.0%}")  # fmt: skip


if __name__ == "__main__":
    main()
