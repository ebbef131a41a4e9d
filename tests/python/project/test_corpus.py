"""Every corpus program, compiled here: our readers against XLA's parser, and small goldens.

Text and proto give equal Modules, XLA's own parser (in a child process) sees the same
instructions, and printing is a fixed point. The goldens say how many of what each program
holds for the jax version they were made with; for another one only the claims are checked.
Regenerate with ``python tests/python/project/test_corpus.py``.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if __name__ != "__main__":
    import xla_oracle
    from corpus.programs import PROGRAMS

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "corpus.json"
# what both kinds of chip are asked: all of v5e, and of v5p those whose modules differ most
V5P = {
    "gpt_scan", "fsdp", "sequence_parallel", "ring_attention", "experts_all_to_all", "moe_einsum",
    "pipeline", "map_psum", "nested_loops", "sorting", "conv_variants", "random_numbers",
    "narrow_types", "hostile_names", "sharded_embedding", "indexing",
}  # fmt: skip


def cases() -> list[Any]:
    out = []
    for name, program in PROGRAMS.items():
        if "cpu" in program.platforms:
            out.append(pytest.param(name, None, id=name))
        if "tpu" in program.platforms:
            out.append(pytest.param(name, "v5e:2x4", id=f"{name}-v5e"))
            if name in V5P:
                out.append(pytest.param(name, "v5p:2x2x2", id=f"{name}-v5p"))
    return out


def sources(built: Any) -> tuple[str | None, bytes | None]:
    """Text and proto, or what XLA dumped where it fails to print its own module."""
    try:
        return built.text, built.proto
    except Exception:
        return built.recaptured.module.text, None


@pytest.mark.some(50)
@pytest.mark.parametrize(("name", "topology"), cases() if __name__ != "__main__" else [])
def test_readers_agree_with_xla(
    name: str, topology: str | None, compiled: Callable[..., Any], golden: dict[str, Any]
) -> None:
    built = compiled(name, topology)
    text, proto = sources(built)
    judged = xla_oracle.assert_agrees(text, proto)
    # XLA refuses some of its own TPU modules; on CPU it must have judged
    assert topology is not None or judged == "text"
    found = counts(built.module if proto is not None else built.recaptured.module)
    for opcode in built.program.contains:
        assert any(o.startswith(opcode) for o in found["opcodes"]), (opcode, found["opcodes"])
    want = golden["programs"].get(key(name, topology))
    assert want is not None, f"no golden for {key(name, topology)}: regenerate {GOLDEN.name}"
    if (golden["jax"], golden["libtpu"]) == (version("jax"), version("libtpu") or golden["libtpu"]):
        assert found == want
    else:
        assert found["instructions"] > 0  # another compiler: its counts are its own


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(GOLDEN.read_text())
    if read["jax"] != version("jax"):
        print(f"goldens are of jax {read['jax']}, this is {version('jax')}: counts not compared")
    return read


def test_the_corpus_is_what_it_says() -> None:
    assert len(PROGRAMS) >= 44
    assert all(p.shows for p in PROGRAMS.values())
    meshes = {tuple(p.mesh.values()) for p in PROGRAMS.values() if p.mesh}
    assert meshes >= {(8,), (2, 4), (2, 2, 2)}
    tpu = [p for p in PROGRAMS.values() if "tpu" in p.platforms]
    assert len(tpu) >= 40


def test_goldens_name_no_program_that_is_gone(golden: dict[str, Any]) -> None:
    assert {k.split("@")[0] for k in golden["programs"]} == set(PROGRAMS)


def key(name: str, topology: str | None) -> str:
    return f"{name}@{topology}" if topology else name


def version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def counts(module: Any) -> dict[str, Any]:
    return {
        "computations": len(module.computations),
        "instructions": len(module.instructions),
        "entry": len(module.entry.instructions),
        "parameters": len(module.entry.parameters),
        "opcodes": dict(sorted(Counter(i.opcode for i in module.instructions).items())),
    }


def regenerate() -> None:
    from corpus.build import build

    programs = {}
    for case in cases():
        name, topology = case.values
        built = build(name, topology)
        _, proto = sources(built)
        module = built.module if proto is not None else built.recaptured.module
        programs[key(name, topology)] = counts(module)
    out = {"jax": version("jax"), "libtpu": version("libtpu"), "programs": programs}
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in programs.items())
    head = json.dumps({k: v for k, v in out.items() if k != "programs"})
    GOLDEN.write_text(f'{head[:-1]}, "programs": {{\n{lines}\n}}}}\n')
    print(f"{len(programs)} programs, {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import conftest  # noqa: F401  (sets the environment before jax is imported)
    from corpus.programs import PROGRAMS

    regenerate()
