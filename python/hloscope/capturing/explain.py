"""jax's and XLA's errors as ``CaptureError`` where hloscope has better advice.

An error in the user's own function passes unchanged: its traceback is the useful part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .errors import CaptureError

_MESH = (
    "incompatible devices",
    "context mesh",
    "Mesh for all inputs",
    "device_assignment",
    "mesh of aval",
    "meshes to be equal",
    "different mesh",
    "should match the mesh",
    "does not match the sharding on the respective arg",
)
_UNEVEN = ("is not divisible", "should be divisible", "should evenly divide")
OTHER_MESH = (
    "{name} holds shardings of another mesh than the one to capture for: give mesh= the axis "
    "names of its own mesh, or let it take the mesh as an argument, use bare PartitionSpecs "
    "(with_sharding_constraint(x, P('data'))), or jax.shard_map without mesh=; hloscope sets the "
    "mesh while tracing"
)


_MIXED = (
    "the arguments of {name} and what it closes over are on different devices: put all of "
    "them on one mesh"
)


@contextlib.contextmanager
def explained(step: str, name: str, *, moved: bool = False) -> Iterator[None]:
    """``step``: "trace", "lower" or "compile"; ``moved``: arguments were put on another mesh."""
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        said = _first_line(error)
        if _is_mesh_error(error) and (moved or step != "trace"):
            advice = (OTHER_MESH if moved else _MIXED).format(name=name)
            raise CaptureError(f"{advice} ({said})") from error
        if any(part in str(error) for part in _UNEVEN):
            raise CaptureError(
                f"an argument of {name} cannot be split evenly over the mesh: {said}"
            ) from error
        if step == "compile":
            raise CaptureError(f"XLA could not compile {name}: {said}") from error
        error.add_note(f"raised while hloscope {_DOING[step]} {name}")
        raise


_DOING = {"trace": "traced", "lower": "lowered"}


def _is_mesh_error(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, ValueError | TypeError | RuntimeError) and any(
        part in text for part in _MESH
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= 300 else text[:300] + "…"
