"""``%hlo`` and ``%%hlo``: a call that is not made, shown as what XLA makes of it.

    %hlo --stage hlo f(x, y=g(z))
         └ options ┘ └ expression: callee and arguments are evaluated, f is not called

Options are split off here and not by IPython, whose splitters mangle expressions.
"""

# IPython's decorators carry no types
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import difflib
import io
import shlex
from typing import Any

from IPython.core.display_functions import display as show
from IPython.core.error import TryNext, UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from ...api.capture import STAGES, Capture
from ...hardware.platforms import choose_cpu_before_jax
from ...hlo.mesh import mesh_axes
from ...readers.entries import name_or_number
from . import expressions

# Ids of js/panels/colorings/colorings.ts; a test checks that they are the same.
COLORS = (
    "family",
    "scope",
    "bytes",
    "collectives",
    "phase",
    "sharding",
    "flops",
    "bytes_accessed",
    "seconds",
    "live_bytes",
    "measured",
)
# Ids of js/panels/index.ts, except search results.
PANELS = (
    "findings",
    "details",
    "text",
    "code",
    "cost",
    "timeline",
    "memory",
    "measured",
    "collectives",
    "devices",
    "passes",
    "source",
    "outline",
)
OPTIONS = (
    "--stage",
    "--topology",
    "--mesh",
    "--module",
    "--title",
    "--hardware",
    "--color-by",
    "--panel",
    "--height",
    "--search",
    "--passes",
    "--watch",
    "--what-if",
    "--prove",
    "--run",
)
# Options without a value.
FLAGS = ("--search", "--passes", "--watch", "--prove", "--run")


def load(ipython: Any) -> None:
    """Registers the magic and its completions."""
    if choose_cpu_before_jax():
        print(
            "hloscope: libtpu is installed and no TPU is attached, so jax will use the CPU "
            "here (set JAX_PLATFORMS to choose)"
        )
    ipython.register_magics(HloMagics)
    for key in ("%hlo", "%%hlo"):
        ipython.set_hook("complete_command", complete, str_key=key)


@magics_class
class HloMagics(Magics):  # type: ignore[misc]
    """The one magic; argparse writes its help from the options below."""

    @magic_arguments()
    @argument("--stage", choices=STAGES, help="which form to show; default optimized")
    @argument("--topology", metavar="NAME", help="a TPU topology, such as v5e:16x16; no TPU needed")
    @argument("--mesh", metavar="AXES", help="axis sizes to compile for, such as data=16,model=16")
    @argument("--module", metavar="NAME|INDEX", help="which module of a file that holds several")
    @argument("--title", help="title of the view")
    @argument("--hardware", metavar="CHIP", help="chip to model time on, such as tpu-v5e or h100")
    @argument("--color-by", metavar="WHAT", help=f"initial colouring: {', '.join(COLORS)}")
    @argument("--panel", metavar="WHICH", help=f"panel to open: {', '.join(PANELS)}")
    @argument("--height", metavar="PIXELS", help="height of the view")
    @argument("--search", action="store_true", help="rank ways to shard the call's arguments")
    @argument("--passes", action="store_true", help="keep every compiler pass, and show them")
    @argument("--watch", action="store_true", help="run it, and show what jax compiles meanwhile")
    @argument("--what-if", metavar="CHANGES", help="changes to make: \"donate='params'\"")
    @argument("--prove", action="store_true", help="try what findings advise, and show the gains")
    @argument("--run", action="store_true", help="run it, and say how long a run takes")
    @no_var_expand
    @line_cell_magic
    def hlo(self, line: str, cell: str | None = None) -> Any:
        """Show what XLA makes of a call, without making the call. Returns the capture.

        %hlo f(x, y, z=3)           a jitted or plain function; arguments are evaluated
        %hlo lowered                a Lowered, Compiled, Traced or Capture
        %hlo dump.hlo               a file or folder, quoted if it has spaces
        cap = %hlo f(x)             keeps the capture
        %hlo --topology v5e:16x16 --mesh data=16,model=16 step(params, batch)
        %hlo --search --mesh data=2,model=4 step(params, batch)    which sharding is cheapest

        %hlo --passes step(params, batch)    what each compiler pass did
        %hlo --what-if "donate='params', remat='block'" step(params, batch)    changed
        %hlo --prove step(params, batch)     what findings advise, tried
        %hlo --run step(params, batch)       runs the call: how long, and what waits
        %hlo --watch train(params, batches)  runs the call: what jax compiles meanwhile, and why

        %%hlo --watch               the same of a whole cell
        %%hlo --stage stablehlo     runs the cell, all but its last expression,
        y = g(x)                    and shows that one
        f(y)
        """
        __tracebackhide__ = True
        words, rest = split_options(line)
        args = HloMagics.hlo.parser.parse_args(words)
        options = {
            "stage": args.stage,
            "topology": args.topology,
            "mesh": parse_mesh(args.mesh),
            "module": name_or_number(args.module),
            "title": args.title,
            "hardware": _chip(args.hardware),
        }
        display = {
            "colorBy": _one_of(COLORS, args.color_by, "--color-by"),
            "panel": _one_of(PANELS, args.panel, "--panel"),
            "height": _height(args.height),
        }
        if args.watch:
            refused = [w for w in words if w != "--watch"]
            if refused:
                raise UsageError(
                    f"%hlo: --watch cannot be combined with {refused[0]}: it runs the code"
                )
            return expressions.watch(rest, cell, self.shell)
        if args.passes:
            options["passes"] = True
            display["panel"] = display["panel"] or "passes"
        if cell is None:
            if not rest:
                raise UsageError("%hlo needs a call, a name or a file: %hlo f(x); see %hlo?")
            source = expressions.from_line(rest, self.shell)
        else:
            if rest:
                raise UsageError(f"%%hlo takes options only on its first line, not {rest!r}")
            source = expressions.from_cell(cell, self.shell)
        if args.search:
            refused = [k for k in ("stage", "module", "title") if getattr(args, k) is not None]
            if refused:
                raise UsageError(f"%hlo: --search goes with --mesh, not with --{refused[0]}")
            return expressions.search(source, options)
        capture = expressions.capture(source, {k: v for k, v in options.items() if v is not None})
        if not isinstance(capture, Capture):
            return capture  # the log of a planner, which shows itself
        if args.what_if is not None:
            capture = expressions.what_if(capture, args.what_if, self.shell)
        if args.prove:
            expressions.prove(capture)
        if args.run:
            show(expressions.run(capture, source))
            display["panel"] = display["panel"] or "measured"
        capture.display |= {name: value for name, value in display.items() if value is not None}
        return capture


def split_options(line: str) -> tuple[list[str], str]:
    """Leading ``--option value`` and ``--option=value`` words, and the rest untouched."""
    words: list[str] = []
    rest = line.strip()
    while rest.startswith("-"):
        word, rest = _word(rest)
        name, equals, value = word.partition("=")
        if name == "--":
            break
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"options: {', '.join(OPTIONS)}"
            raise UsageError(f"%hlo has no option {name}; {hint}")
        if name in FLAGS:
            if equals:
                raise UsageError(f"%hlo option {name} takes no value")
            words.append(name)
            continue
        if not equals:
            if not rest:
                raise UsageError(f"%hlo option {name} needs a value")
            value, rest = _word(rest)
        words.append(f"{name}={value}")
    return words, rest


def _word(text: str) -> tuple[str, str]:
    """First shell word, quotes removed, and what follows it."""
    stream = io.StringIO(text)
    lexer = shlex.shlex(stream, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        word = lexer.get_token() or ""
    except ValueError:
        raise UsageError(f"%hlo: a quote is not closed in {text}") from None
    return word, stream.read().lstrip()


def parse_mesh(text: str | None) -> dict[str, int] | None:
    """``data=16,model=16`` → {"data": 16, "model": 16}."""
    if text is None:
        return None
    try:
        return mesh_axes(text)
    except ValueError as error:
        raise UsageError(f"%hlo --mesh: {error}") from None


def _chip(name: str | None) -> str | None:
    from ...hardware import HardwareError, find

    try:
        return None if name is None else find(name).id
    except HardwareError as error:
        raise UsageError(f"%hlo --hardware: {error}") from None


def _one_of(known: tuple[str, ...], name: str | None, option: str) -> str | None:
    if name is None or name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise UsageError(f"%hlo {option} does not know {name!r}; {hint}")


def _height(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 0 < int(text) < 10_000:
        raise UsageError(f"%hlo --height is pixels such as 640, not {text!r}")
    return int(text)


def complete(shell: Any, event: Any) -> list[str]:
    """Option names, the values of those that have a list, and the user's names."""
    typed = getattr(event, "text_until_cursor", event.line)
    word = typed.split()[-1] if typed and not typed[-1].isspace() else ""
    before = typed[: len(typed) - len(word)].split()
    name, equals, value = word.partition("=")
    option = name if equals else before[-1] if len(before) > 1 else ""
    values = _values(option)
    if values is not None:
        partial = value if equals else word
        found = [v for v in values if v.startswith(partial)]
        # the completer replaces event.symbol only, which begins after the last delimiter
        cut = len(partial) - len(event.symbol)
        return [v[cut:] for v in found] if cut >= 0 else found
    if word.startswith("-"):
        return [o for o in OPTIONS if o.startswith(word)]
    if event.symbol and event.symbol[0].isalpha():
        # with jedi, IPython completes no plain name after a magic
        one = shell.Completer
        found = one.attr_matches if "." in event.symbol else one.global_matches
        return list(found(event.symbol))
    raise TryNext


def _values(option: str) -> tuple[str, ...] | None:
    if option == "--stage":
        return STAGES
    if option == "--color-by":
        return COLORS
    if option == "--panel":
        return PANELS
    if option == "--hardware":
        from ...hardware import load as chips

        return tuple(chips())
    if option == "--topology":
        from ...capturing.topology import KNOWN

        return KNOWN
    return None
