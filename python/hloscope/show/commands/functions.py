"""A function and its arguments, named on the command line: ``MODULE:FUNCTION``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from .shared import CommandError


def add_function(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "function", metavar="MODULE:FUNCTION", help="train:step, or path/to/train.py:step"
    )
    parser.add_argument(
        "--args",
        metavar="NAME",
        help="in the same module, a tuple of arguments (shapes will do) or a function that gives "
        "one; FUNCTION_args by default",
    )


def axes_of(text: str) -> dict[str, int]:
    """``data=2,model=4`` as axis sizes. Raises ``CommandError``."""
    axes = {}
    for part in text.split(","):
        axis, _, size = part.partition("=")
        if not axis.strip().isidentifier() or not size.strip().isdigit():
            raise CommandError(f"--mesh is axis=size pairs such as data=2,model=4, not {text!r}")
        axes[axis.strip()] = int(size)
    return axes


def function_of(text: str, args_name: str | None) -> tuple[Any, tuple[Any, ...]]:
    """The function and its arguments. Raises ``CommandError``."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise CommandError(f"give MODULE:FUNCTION, such as train:step, not {text!r}")
    from ...hardware.platforms import choose_cpu_before_jax

    choose_cpu_before_jax()
    module = _module(place)
    names = [n for n in vars(module) if not n.startswith("_")]
    if not hasattr(module, name):
        raise CommandError(f"{place} has no {name}{_near(name, names)}")
    wanted = args_name or f"{name}_args"
    if not hasattr(module, wanted):
        raise CommandError(
            f"{place} has no {wanted}: a tuple of {name}'s arguments, or a function that gives "
            f"one; name another with --args{_near(wanted, names)}"
        )
    args = getattr(module, wanted)
    args = args() if callable(args) else args
    if not isinstance(args, tuple):
        raise CommandError(f"{wanted} is a {type(args).__name__}, not a tuple of arguments")
    return getattr(module, name), args


def _near(name: str, names: list[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, names, 1)
    return f"; did you mean {found[0]}?" if found else ""


def _module(place: str) -> Any:
    try:
        if place.endswith(".py") or os.sep in place:
            path = Path(place)
            if not path.is_file():
                raise CommandError(f"{place}: no such file")
            sys.path.insert(0, str(path.resolve().parent))
            return importlib.import_module(path.stem)
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(place)
    except CommandError:
        raise
    except Exception as error:  # whatever the user's module raises
        first = (str(error).splitlines() or [""])[0]
        raise CommandError(f"{place} cannot be imported: {type(error).__name__}: {first}") from None
