"""HLO text whose instructions have Python stacks, written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Stack = Sequence[tuple[str, int]]  # (function, line in it), outermost first


class Stacks:
    """Numbers stacks as XLA's tables of frames do."""

    def __init__(self, file: str = "step.py") -> None:
        self.file = file
        self.functions: dict[str, int] = {}
        self.places: dict[tuple[str, int], int] = {}
        self.frames: dict[tuple[int, int], int] = {}

    def frame(self, stack: Stack) -> int:
        at = 0
        for function, line in stack:
            self.functions.setdefault(function, len(self.functions) + 1)
            place = self.places.setdefault((function, line), len(self.places) + 1)
            at = self.frames.setdefault((place, at), len(self.frames) + 1)
        return at

    def head(self) -> str:
        rows = ["HloModule m", "", "FileNames", f'1 "{self.file}"', "", "FunctionNames"]
        rows += [f'{n} "{name}"' for name, n in self.functions.items()]
        rows += ["", "FileLocations"]
        for (name, line), n in self.places.items():
            of = f"file_name_id=1 function_name_id={self.functions[name]}"
            rows.append(f"{n} {{{of} line={line} end_line={line} column=1 end_column=2}}")
        rows += ["", "StackFrames"]
        for (place, around), n in self.frames.items():  # around: + 1, as XLA prints it
            rows.append(f"{n} {{file_location_id={place} parent_frame_id={around + 1}}}")
        return "\n".join([*rows, "", ""])


def chain_of(stacks: Stacks, steps: Iterable[Stack | None], scope: str = "") -> str:
    """ENTRY of one chain, ``i0 → i1 → …``: an operation of each stack."""
    rows = ["ENTRY main {", "  x = f32[64] parameter(0)"]
    at = "x"
    for k, stack in enumerate(steps):
        told = [f'op_name="jit(f)/{scope}sin"'] if scope else []
        if stack:
            told.append(f"stack_frame_id={stacks.frame(stack)}")
        meta = f", metadata={{{' '.join(told)}}}" if told else ""
        rows.append(f"  i{k} = f32[64] {('sine', 'cosine')[k % 2]}({at}){meta}")
        at = f"i{k}"
    text = "\n".join([*rows, f"  ROOT r = (f32[64]) tuple({at})", "}", ""])
    return stacks.head() + text
