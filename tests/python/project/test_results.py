"""Results of equal kind are gathered, and nothing else is."""

from hloscope.analysis.grouping.groups import group_tree
from hloscope.readers import read_modules


def module_of(updates: int, others: int) -> str:
    lines = ["HloModule m, is_scheduled=true", "", "ENTRY %main (p: f32[8]) -> f32[8] {"]
    lines.append("  %p = f32[8]{0} parameter(0)")
    last = "p"
    for k in range(others):
        opcode = "tanh" if k % 2 else "negate"
        lines.append(f"  %o.{k} = f32[8]{{0}} {opcode}(%{last})")
        last = f"o.{k}"
    names = []
    for k in range(updates):
        lines.append(f"  %u.{k} = f32[8]{{0}} multiply(%{last}, %p)")
        names.append(f"%u.{k}")
    shapes = ", ".join(["f32[8]{0}"] * updates)
    lines += [f"  ROOT %t = ({shapes}) tuple({', '.join(names)})", "}"]
    return "\n".join(lines)


def labels(text: str) -> list[str]:
    tree = group_tree(read_modules(text)[0])
    return [label for label in tree.label if "×" in label]


def test_few_results_or_little_else_stay_as_they_are():
    assert labels(module_of(5, 12)) == []
    assert labels(module_of(8, 4)) == []


def test_an_update_without_metadata_is_gathered(seeds):
    path = next(seeds.glob("004_*.txt"))
    module = max(read_modules(path.read_bytes()), key=lambda m: len(m.instructions))
    tree = group_tree(module)
    assert "optimizer" in tree.label
