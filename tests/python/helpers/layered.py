"""Programs with layers in a few words, as in ``small_graphs``, and where each row is shown."""

from __future__ import annotations

from collections.abc import Mapping

from hloscope.analysis.base.lines.op_name import LAYER
from hloscope.analysis.grouping.layers.layers import layers
from small_graphs import BEFORE, SHAPE, Small
from stacked import Stack, Stacks

FORWARD, BACKWARD = "jvp()", "transpose(jvp())"
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
PAIR = f"({SHAPE}, {SHAPE})"
MORE = f"more {{\n  c = {PAIR} parameter(0)\n  ROOT t = pred[] constant(true)\n}}\n"


def stem(name: str) -> str:
    """``h12`` is an ``h``."""
    return name.rstrip("0123456789")


class Model:
    """``where``: the scope of instructions, by name or name without number; None: no op_name.

    ``calls``: their Python stacks, by name or name without number.
    """

    def __init__(
        self,
        spec: str,
        where: Mapping[str, str | None],
        shapes: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
        before: str = BEFORE,
        calls: Mapping[str, Stack] | None = None,
    ) -> None:
        stacks = Stacks()
        attributes: dict[str, str] = {}
        for item in spec.split():
            head = item.partition(":")[0]
            name, _, opcode = head.rstrip("!").partition("=")
            kind = stem(name)
            told = []
            if head.endswith("!"):
                told.append(f"p[{name[len(kind) :]}]['{kind}']" if name != kind else name)
            elif (path := where.get(name, where.get(kind, ""))) is not None:
                told.append(f"jit(f)/{path}/{kind}".replace("//", "/"))
            told = [f'op_name="{t}"' for t in told]
            if calls and (stack := calls.get(name, calls.get(kind))):
                told.append(f"stack_frame_id={stacks.frame(stack)}")
            said = [(more or {}).get(name, DOT if opcode == "dot" else "")]
            said.append(f"metadata={{{' '.join(told)}}}" if told else "")
            if any(said):
                attributes[name] = ", ".join(filter(None, said))
        tables = stacks.head().partition("\n")[2] if calls else ""
        self.s = Small(spec, None, shapes, attributes, tables + before)
        self.module = self.s.module
        self.layers = layers(self.module)

    def place(self, row: int) -> str:
        """The boxes around an instruction, as ``forward > layer 3``."""
        scopes = self.layers.scopes
        n = int(scopes.scope[row])
        return " > ".join(scopes.paths[n]).replace(LAYER, "") if n >= 0 else ""

    def of(self, name: str) -> str:
        return self.place(self.s.at(name))

    def at(self, names: str) -> set[str]:
        """The places of several instructions."""
        return {self.of(name) for name in names.split()}

    def inside(self, computation: str, name: str) -> str:
        """The boxes around an instruction of another computation."""
        found = next(c for c in self.module.computations if c.name == computation)
        return self.place(next(i.index for i in found.instructions if i.name == name))

    def stacks(self) -> list[tuple[str, int, bool]]:
        """Name, count and whether it is of the gradients, of each stack of layers."""
        return [(run.name, run.stack.count, run.recedes) for run in self.layers.runs]


def step(count: int = 4, embed: str = "gather:table,x", skip: bool = False) -> str:
    """A training step of layers with a product each; ``IN_STEP`` says of which pass a row is.

    ``skip``: what enters a layer is added to what leaves it.
    """
    spec = ["x! table! out!", *(f"w{k}!" for k in range(count)), f"emb={embed}"]
    at = "emb"
    for k in range(count):
        leaves = f"add:h{k},{at}" if skip else f"tanh:h{k}"
        spec.append(f"n{k}=sine:{at} h{k}=dot:n{k},w{k} t{k}={leaves}")
        at = f"t{k}"
    spec.append(f"logits=dot:{at},out loss=cosine:logits dloss=exponential:loss")
    spec.append(f"dout=dot:dloss,{at} dlast=dot:dloss,out")
    at = "dlast"
    for k in reversed(range(count)):
        spec.append(f"a{k}=multiply:{at},h{k} b{k}=dot:a{k},n{k} c{k}=dot:a{k},w{k}")
        spec.append(f"d{k}=multiply:c{k},n{k}")
        at = f"d{k}"
    spec.append(f"demb=scatter:{at}")
    spec += [f"u{k}=subtract:w{k},b{k}" for k in range(count)]
    spec += ["uout=subtract:out,dout utable=subtract:table,demb"]
    return " ".join([*spec, f"r=tuple:{','.join(f'u{k}' for k in range(count))},uout,utable"])


IN_STEP = {name: FORWARD for name in "emb n h t logits loss".split()}
IN_STEP |= {name: BACKWARD for name in "dloss dout dlast a b c d demb".split()}


def body(name: str, opcodes: str, where: str = "") -> str:
    """A loop's body: instructions one after another, each of its own scope."""
    rows = [f"  c = {PAIR} parameter(0)"]
    rows += [f"  {v} = {SHAPE} get-tuple-element(c), index={n}" for n, v in enumerate("vu")]
    at = "v"
    for k, opcode in enumerate(opcodes.split()):
        operands, dims = (f"{at}, u", f", {DOT}") if opcode == "dot" else (at, "")
        said = f'metadata={{op_name="jit(f)/{where}/{opcode}"}}'
        rows.append(f"  i{k} = {SHAPE} {opcode}({operands}){dims}, {said}")
        at = f"i{k}"
    return "\n".join([f"{name} {{", *rows, f"  ROOT o = {PAIR} tuple({at}, u)", "}", ""])
