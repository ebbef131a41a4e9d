"""Run as a program: StableHLO bytecode on standard input, its text on standard output.

Exit status 3 means that MLIR's bindings are not installed.
"""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, sdy, stablehlo
    except ImportError as e:
        print(e, file=sys.stderr)
        return 3
    data = sys.stdin.buffer.read()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (sdy, chlo, stablehlo):
        dialect.register_dialect(context)
    context.allow_unregistered_dialects = True
    with context:
        try:  # portable artifacts are also plain bytecode, but of the VHLO dialect
            module = stablehlo.deserialize_portable_artifact(context, data)
        except Exception:
            try:
                module = ir.Module.parse(data)
            except Exception as e:
                print(str(e).replace("\n", " "), file=sys.stderr)
                return 1
        text = str(module.operation.get_asm(enable_debug_info=True))
    sys.stdout.buffer.write(text.encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
