"""What analyses of whole captures need of one."""

from __future__ import annotations

from typing import Protocol

from ...hlo import Module, Target


class Captured(Protocol):
    """A program with its target and a title: a ``Capture``."""

    @property
    def module(self) -> Module: ...
    @property
    def target(self) -> Target: ...
    @property
    def title(self) -> str: ...
