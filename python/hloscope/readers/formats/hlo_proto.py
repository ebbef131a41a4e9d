"""HLO as Protobuf's bytes: HloModuleProto, HloProto, HloSnapshot."""

from __future__ import annotations

from ...hlo import Module
from ..hlo import checks
from ..recognise import is_proto

NAME = "HLO proto"
SUFFIXES = (".pb",)
IS_CERTAIN = False

accepts = is_proto


def read(data: bytes, name: str) -> list[Module]:
    """The one module of a file. Raises ``ReadError``."""
    from ..proto.proto import read_proto

    module = read_proto(data, name)
    checks.unsaid_devices(module)
    return [module]
