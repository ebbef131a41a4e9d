"""The message of HLO analyses for a module of another dialect."""

from __future__ import annotations

from ...hlo import Module, Target


def needs_hlo(what: str, module: Module, target: Target | None) -> str:
    """A sentence for a ``ValueError``: what is missing, and what can be done about it here.

    A live program has other stages; a file that was read has none.
    """
    if target is not None and target.jax_version:
        do = "take cap.at('optimized')"
    else:
        do = (
            "compile the program and read that: jax.jit(f).lower(…).compile().as_text(), or what "
            "XLA_FLAGS=--xla_dump_to=FOLDER writes"
        )
    return f"{what} needs HLO, and this is {module.dialect}: {do}"
