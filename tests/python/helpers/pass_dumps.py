"""Dumps of passes for tests, as their ENTRY: instructions separated by semicolons.

Behind ``@`` is the op name, behind ``#`` the stack frame: ``a = f32[] tanh(p)@f/tanh#7``. ``&``
joins op names, as a semicolon does in dumps. Other computations are keywords.
"""

from __future__ import annotations


def dump(entry: str, **others: str) -> str:
    blocks = [*others.items(), ("ENTRY e", entry)]
    written = "\n".join(
        f"{name} {{\n" + "".join(f"  {_line(x)}\n" for x in of.split(";")) + "}\n"
        for name, of in blocks
    )
    return f"HloModule m\n\n{written}"


def _line(text: str) -> str:
    said, _, named = text.strip().partition("@")
    op_name, _, frame = named.partition("#")
    op_name = op_name.replace("&", ";")
    told = [f'op_name="{op_name}"'] * bool(op_name) + [f"stack_frame_id={frame}"] * bool(frame)
    return said + (f", metadata={{{' '.join(told)}}}" if told else "")
