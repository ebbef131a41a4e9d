"""A program whose boxes have known names, as HLO text."""

from __future__ import annotations


def program(parts: tuple[str, ...] = ("encoder", "decoder")) -> str:
    """Parts of an attention and an MLP each, named by scopes."""
    lines = ["  %x.0 = f32[64,64]{1,0} parameter(0)", "  %w = f32[64,64]{1,0} parameter(1)"]
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"

    def op(name: str, text: str, scope: str) -> str:
        what = f'metadata={{op_name="jit(f)/{scope}"}}'
        lines.append(f"  %{name} = f32[64,64]{{1,0}} {text}, {what}")
        return name

    def block(x: str, part: str, name: str, after: tuple[str, ...]) -> str:
        x = op(f"{part}.{name}.dot", f"dot(%{x}, %w), {dims}", f"{part}/{name}/dot_general")
        for what in after:
            x = op(f"{part}.{name}.{what}", f"{what}(%{x})", f"{part}/{name}/{what}")
        return x

    x = "x.0"
    for part in parts:
        a = block(x, part, "attention_block", ("tanh", "sine", "cosine"))
        m = block(a, part, "mlp_block", ("exponential", "logistic", "abs"))
        x = op(f"{part}.res", f"add(%{m}, %{a})", f"{part}/add")
    lines.append(f"  ROOT %out = f32[64,64]{{1,0}} negate(%{x})")
    head = "HloModule jit_f, is_scheduled=true\n\n"
    body = "\n".join(lines)
    return f"{head}ENTRY %main (x: f32[64,64], w: f32[64,64]) -> f32[64,64] {{\n{body}\n}}\n"
