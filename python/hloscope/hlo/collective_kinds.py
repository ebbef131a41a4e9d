"""The kinds of collectives: the one table from which everything about them follows.

    ring       every member passes parts to the next: n-1 steps of S/n bytes, ``passes`` times round
    exchange   every member sends a different part to each other: n-1 steps, (n-1)/n · S
    chain      one member's value is passed on along the group: n-1 steps, S
    pairs      a member sends to the one it is paired with: one step, S

n devices in a group, S bytes of payload. Sources: Thakur, Rabenseifner and Gropp, "Optimization
of Collective Communication Operations in MPICH", 2005; the same factors are in NCCL-tests'
PERFORMANCE.md. Opcodes are those of xla/hlo/ir/hlo_opcode.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FORMS = ("-start", "-update", "-done")


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    """What there is to know about one kind, whatever the program.

    ``passes`` is how often the payload goes round a ring. ``payload`` says what S is: bytes of
    all operands, of the first one, or of the result. ``reduces``: values are combined by a
    computation. ``gathers``: the result is the parts of all members put together; ``scatters``:
    each member keeps its part of the result. ``reshards``: values stay the same and only move, as a
    change of sharding needs. ``is_async``: has -start and -done opcodes of its own;
    ``start_is_value``: its -start has the shape of the result, not a tuple of operands and
    results. ``has_global_ids``: use_global_device_ids says whether groups hold replicas or
    flattened devices; groups of other kinds hold partitions. ``assumes``: an assumption behind
    the figures, as a clause. ``primitives``: what the names of jax's primitives that ask for one
    begin with.
    """

    name: str
    pattern: Literal["ring", "exchange", "chain", "pairs"]
    passes: int = 1
    payload: Literal["operands", "first operand", "result"] = "operands"
    reduces: bool = False
    gathers: bool = False
    scatters: bool = False
    reshards: bool = False
    is_async: bool = False
    start_is_value: bool = False
    has_global_ids: bool = False
    assumes: str = ""
    primitives: tuple[str, ...] = ()

    @property
    def opcodes(self) -> tuple[str, ...]:
        """Its opcode, and those of its asynchronous halves."""
        return (self.name, f"{self.name}-start", f"{self.name}-done")[: 3 if self.is_async else 1]

    @property
    def reduces_whole(self) -> bool:
        """Whether every member gets all of what is reduced."""
        return self.reduces and not self.scatters

    @property
    def exchanges(self) -> bool:
        """Whether every member sends a piece of one value to each other."""
        return self.pattern == "exchange"

    @property
    def is_pairwise(self) -> bool:
        """Whether source-target pairs say who sends to whom, instead of groups."""
        return self.pattern == "pairs"

    def wire_bytes(self, payload: float, members: int) -> float:
        """Bytes that one device sends in one execution; nothing in a group of one."""
        if self.is_pairwise:
            return payload
        if members < 2:
            return 0.0
        return payload if self.pattern == "chain" else self.passes * part(payload, members)

    def steps(self, members: int) -> float:
        """Messages sent one after the other, as a ring behind a switch."""
        if self.is_pairwise:
            return 1.0
        return float(self.passes * max(0, members - 1))


def part(payload: float, members: int) -> float:
    """What a member has to send when it keeps its own n-th."""
    return (members - 1) / members * payload


KINDS: dict[str, CollectiveKind] = {
    kind.name: kind
    for kind in (
        CollectiveKind(
            "all-reduce", "ring", passes=2, reduces=True, is_async=True,
            start_is_value=True, has_global_ids=True, primitives=("psum", "pmax", "pmin"),
        ),
        CollectiveKind(
            "all-gather", "ring", payload="result", gathers=True, reshards=True, is_async=True,
            has_global_ids=True, primitives=("all_gather",),
        ),
        CollectiveKind(
            "reduce-scatter", "ring", reduces=True, scatters=True, has_global_ids=True,
            primitives=("reduce_scatter", "psum_scatter"),
        ),
        CollectiveKind("all-to-all", "exchange", reshards=True, primitives=("all_to_all",)),
        CollectiveKind(
            "collective-permute", "pairs", reshards=True, is_async=True, primitives=("ppermute",)
        ),
        CollectiveKind("collective-broadcast", "chain", primitives=("pbroadcast",)),
        CollectiveKind(
            "ragged-all-to-all", "exchange", payload="first operand",
            assumes="as if its rows were spread evenly: how many go where is known when it runs",
        ),
    )
}  # fmt: skip
OPCODES = tuple(opcode for kind in KINDS.values() for opcode in kind.opcodes)
PERMUTE = "collective-permute"
# Several permutes with one meaning: a matmul whose operand or result goes round a ring, and the
# edges of tiles that a windowed op needs from its neighbours.
MATMUL, HALO = OF_PERMUTES = ("collective-matmul", "halo-exchange")


def split(opcode: str) -> tuple[str, str] | None:
    """("all-reduce", "-start") of an opcode; None when it is not a collective."""
    for form in FORMS:
        if opcode.endswith(form) and opcode[: -len(form)] in KINDS:
            return opcode[: -len(form)], form
    return (opcode, "") if opcode in KINDS else None


# Of what is no collective: all columns say no.
_NONE = CollectiveKind("", "chain")


def kind_of(opcode: str) -> CollectiveKind:
    """The row of a kind, of its opcode, or of half of one; for anything else one without a name
    that says no to everything.

    So ``kind_of(row.kind).gathers`` asks what a kind does instead of what it is called.
    """
    found = split(opcode)
    return KINDS[found[0]] if found is not None else _NONE


def asked_kind(primitive: str) -> CollectiveKind:
    """The kind that a primitive of jax asks for: of ``all_gather``, or one that says no to all."""
    found = [(len(p), k) for k in KINDS.values() for p in k.primitives if primitive.startswith(p)]
    return max(found, key=lambda x: x[0])[1] if found else _NONE  # psum_scatter is no psum


def is_collective(opcode: str) -> bool:
    """Whether an opcode is a collective or one half of one."""
    return split(opcode) is not None
