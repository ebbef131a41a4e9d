"""What differs between two Modules of the same program: the check behind every reader.

Compared: order and names of computations and instructions, opcodes, shapes with layouts,
operands, called computations, roots, attributes one by one, literals, execution threads,
stack frames, and those header attributes that both hold (a proto has no ``num_partitions``).
The order of keys in a JSON backend config is not, since XLA prints it differently from one
call to the next. Operand text is not compared: old dumps repeat the operands' types there.
"""

from __future__ import annotations

from .module import Computation, Instruction, Module


def differences(a: Module, b: Module, limit: int = 20) -> list[str]:
    """One line per difference, at most ``limit`` of them; [] when the modules are equal."""
    out: list[str] = []
    _compare("module name", a.name, b.name, out)
    _compare("dialect", a.dialect, b.dialect, out)
    for key in a.attributes.keys() & b.attributes.keys():
        _compare(f"header {key}", a.attributes[key], b.attributes[key], out)
    _compare("frames", a.frames, b.frames, out)
    names = [c.name for c in a.computations], [c.name for c in b.computations]
    if names[0] != names[1]:
        missing = [n for n in names[0] if n not in set(names[1])]
        extra = [n for n in names[1] if n not in set(names[0])]
        if missing or extra:
            out.append(f"computations: only in the first {missing[:5]}, in the second {extra[:5]}")
        else:
            out.append("computations are in another order")
    _compare("entry", a.entry and a.entry.name, b.entry and b.entry.name, out)
    for c, d in zip(a.computations, b.computations, strict=False):
        if c.name == d.name and len(out) < limit:
            _computation(c, d, out)
    return out[:limit]


def _compare(what: str, x: object, y: object, out: list[str]) -> None:
    if x != y:
        out.append(f"{what}: {_short(x)} | {_short(y)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "…"


def _computation(c: Computation, d: Computation, out: list[str]) -> None:
    where = f"%{c.name}"
    _compare(f"{where} attributes", c.attribute_text, d.attribute_text, out)
    _compare(f"{where} root", c.root and c.root.name, d.root and d.root.name, out)
    names = [i.name for i in c.instructions], [i.name for i in d.instructions]
    if names[0] != names[1]:
        out.append(f"{where} instructions: {_short(names[0])} | {_short(names[1])}")
        return
    for i, j in zip(c.instructions, d.instructions, strict=True):
        _instruction(i, j, out)


def _instruction(i: Instruction, j: Instruction, out: list[str]) -> None:
    where = f"%{i.name} in %{i.computation.name}"
    _compare(f"{where} opcode", i.opcode, j.opcode, out)
    _compare(f"{where} index", i.index, j.index, out)
    if i.shape is not j.shape:
        _compare(f"{where} shape", i.shape, j.shape, out)
    operands = [o.name for o in i.operands], [o.name for o in j.operands]
    _compare(f"{where} operands", *operands, out)
    if i.opcode in ("parameter", "constant"):
        _compare(f"{where} argument", i.argument_text, j.argument_text, out)
    if i.attribute_text != j.attribute_text:
        before = len(out)
        for key in dict.fromkeys([*i.attributes, *j.attributes]):
            if key == "backend_config" and i.backend_config_json == j.backend_config_json != {}:
                continue
            _compare(f"{where} {key}", i.attributes.get(key), j.attributes.get(key), out)
        if len(out) == before and list(i.attributes) != list(j.attributes):
            out.append(f"{where} attribute order: {list(i.attributes)} | {list(j.attributes)}")
    called = (
        [(role, x.name) for role, x in i.called],
        [(role, x.name) for role, x in j.called],
    )
    _compare(f"{where} called", *called, out)
