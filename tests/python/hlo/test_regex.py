"""Patterns are right on every Python 3.11, whose first releases get possessive groups wrong."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from hloscope.hlo.texts.regex import for_python, regex
from hloscope.readers.scan import SPACE

OLD, NEW = (3, 11, 2), (3, 11, 5)
GROUP = re.compile(r"\)[*+?]\+")


def test_groups_that_an_old_python_gets_wrong_are_greedy_there() -> None:
    pattern = r'(?:a|"[^"]*+")*+b(?:c)?+(?:d)++'
    assert for_python(pattern, NEW) == pattern
    assert for_python(pattern, OLD) == r'(?:a|"[^"]*+")*b(?:c)?(?:d)+'


def test_a_comment_is_blank_on_this_python_too() -> None:
    for text in ("/* a */", " /* f32[] ) } */ ", "/***/", "// a\n /* b * c */"):
        assert regex(SPACE).fullmatch(text)
        assert re.compile(for_python(SPACE, OLD)).fullmatch(text)


def test_no_possessive_group_is_compiled_as_it_stands(repo: Path) -> None:
    found = []
    for path in sorted((repo / "python" / "hloscope").rglob("*.py")):
        source = path.read_text()
        if not GROUP.search(source) or path.name == "regex.py":
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "re.compile":
                found.append(f"{path.relative_to(repo)}:{node.lineno}")
    assert found == []
