"""Makes what the renderer, the tests and the docs need of the View's declaration.

    npm run schema

writes ``js/view-extras.ts``: types of the headers, and the tables that the renderer checks blocks
with. ``json_schema`` and ``page`` are for tests and docs. The declaration is
``python/hloscope/view/columns.py`` and ``header.py``; only the standard library is needed.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VIEW = ROOT / "python" / "hloscope" / "view"
OUT = ROOT / "js" / "view-extras.ts"
PRIMITIVES = {"int": "number", "float": "number", "str": "string", "bool": "boolean"}
LENGTH = 100  # characters of a line of generated code


@dataclass(frozen=True)
class Field:
    name: str
    type: ast.expr
    is_optional: bool
    about: str


@dataclass(frozen=True)
class Class:
    """A TypedDict of header.py."""

    name: str
    bases: tuple[str, ...]
    about: str
    fields: tuple[Field, ...]


@cache
def columns() -> ModuleType:
    """columns.py, without importing the package, which needs numpy."""
    spec = importlib.util.spec_from_file_location("view_columns", VIEW / "columns.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def declared() -> tuple[dict[str, Class], dict[str, ast.expr]]:
    """Classes and type aliases of header.py, in its order."""
    classes: dict[str, Class] = {}
    aliases: dict[str, ast.expr] = {}
    for node in ast.parse((VIEW / "header.py").read_text()).body:
        if isinstance(node, ast.ClassDef):
            bases = tuple(b.id for b in node.bases if isinstance(b, ast.Name))
            total = not any(k.arg == "total" for k in node.keywords)
            about = ast.get_docstring(node) or ""
            own = tuple(b for b in bases if b != "TypedDict")
            classes[node.name] = Class(node.name, own, about, tuple(_fields(node, total)))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            aliases[node.targets[0].id] = node.value
    return classes, aliases


def _fields(node: ast.ClassDef, total: bool) -> Iterator[Field]:
    for at, line in enumerate(node.body):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        after = node.body[at + 1] if at + 1 < len(node.body) else None
        about = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            about = " ".join(str(after.value.value).split())
        of, inner = _subscript(line.annotation)
        is_optional = of == "NotRequired" or not total
        yield Field(
            line.target.id, inner if of == "NotRequired" else line.annotation, is_optional, about
        )


def _subscript(type_: ast.expr) -> tuple[str, ast.expr]:
    """``list[X]`` as "list" and X; "" for what has no brackets."""
    if isinstance(type_, ast.Subscript) and isinstance(type_.value, ast.Name):
        return type_.value.id, type_.slice
    return "", type_


def _choices(inner: ast.expr) -> list[str]:
    each = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    return [str(e.value) for e in each if isinstance(e, ast.Constant)]


def _of_dict(inner: ast.expr) -> ast.expr:
    """X of ``dict[str, X]``."""
    assert isinstance(inner, ast.Tuple)
    return inner.elts[1]


# Types of TypeScript


def type_of(type_: ast.expr) -> str:
    """The TypeScript type."""
    if isinstance(type_, ast.BinOp):
        return f"{type_of(type_.left)} | null"
    of, inner = _subscript(type_)
    if of == "list":
        of_each = type_of(inner)
        return f"({of_each})[]" if " " in of_each else f"{of_each}[]"
    if of == "dict":
        return f"Record<string, {type_of(_of_dict(inner))}>"
    if of == "Literal":
        return " | ".join(f'"{c}"' for c in _choices(inner))
    assert isinstance(type_, ast.Name)
    return PRIMITIVES.get(type_.id, type_.id)


def _comment(text: str, indent: str) -> Iterator[str]:
    lines = textwrap.wrap(text.replace("None", "null"), LENGTH - len(indent) - 7)
    if len(lines) == 1:
        yield f"{indent}/** {lines[0]} */"
    elif lines:
        yield from (f"{indent}/**", *(f"{indent} * {line}" for line in lines), f"{indent} */")


def types() -> Iterator[str]:
    """The headers as TypeScript."""
    classes, aliases = declared()
    for name, type_ in aliases.items():
        yield f"export type {name} = {type_of(type_)};"
    for one in classes.values():
        yield from _comment(" ".join(one.about.split()), "")
        extends = f" extends {', '.join(one.bases)}" if one.bases else ""
        yield f"export interface {one.name}{extends} {{"
        for field in one.fields:
            yield from _comment(field.about, "  ")
            yield f"  {field.name}{'?' if field.is_optional else ''}: {type_of(field.type)};"
        yield "}"


# What the renderer checks blocks with


def shape_of(type_: ast.expr) -> str:
    """A type for js/base/validate.ts: "?X" null too, "[X]" a list, "{X}" a dictionary, "a|b|"."""
    if isinstance(type_, ast.BinOp):
        return f"?{shape_of(type_.left)}"
    of, inner = _subscript(type_)
    if of == "list":
        return f"[{shape_of(inner)}]"
    if of == "dict":
        return f"{{{shape_of(_of_dict(inner))}}}"
    if of == "Literal":
        return "".join(f"{c}|" for c in _choices(inner))
    assert isinstance(type_, ast.Name)
    alias = declared()[1].get(type_.id)
    return shape_of(alias) if alias is not None else PRIMITIVES.get(type_.id, type_.id)


def all_fields(name: str) -> list[Field]:
    """Those of its bases too."""
    one = declared()[0][name]
    return [f for base in one.bases for f in all_fields(base)] + list(one.fields)


def _grouped(pairs: list[tuple[str, str]]) -> str:
    """{type: names with it}, as an object of TypeScript."""
    names: dict[str, list[str]] = {}
    for type_, name in pairs:
        names.setdefault(type_, []).append(name)
    inner = ", ".join(f'"{type_}": "{" ".join(each)}"' for type_, each in names.items())
    return f"{{ {inner} }}"


def checks() -> Iterator[str]:
    """Rules of columns and shapes of headers."""
    yield "/**"
    yield " * Prefix of a table's columns, the table that it comes with, and for each kind of rows"
    yield " * names by rule; those with ? may be absent where others are. See base/validate.ts."
    yield " */"
    yield "export type Rules = Record<string, Record<string, string>>;"
    yield "export const TABLES: readonly [string, string, Rules][] = ["
    for table in columns().TABLES:
        by_rows: dict[str, list[tuple[str, str]]] = {}
        for column in table.columns:
            holds = f"{'-1:' if column.has_none else ''}{column.holds}"
            rule = " ".join(filter(None, (column.dtype, holds, column.splits)))
            name = f"{column.name}{'?' if column.may_be_absent else ''}"
            by_rows.setdefault(column.rows or table.rows, []).append((rule, name))
        inner = ", ".join(f'"{rows}": {_grouped(pairs)}' for rows, pairs in by_rows.items())
        yield f'  ["{table.name}", "{table.along}", {{ {inner} }}],'
    yield "];"
    yield "/** Rows, and the column that has one element for each; others are named by theirs. */"
    yield "export const LEADS: Record<string, string> = {"
    yield from (f'  "{rows}": "{x}",' for rows, x in columns().LEADS.items() if rows != x)
    yield "};"
    yield "/** Fields of each object of the headers, by their type; those with ? may be absent. */"
    yield "export const SHAPES: Record<string, Record<string, string>> = {"
    for name in declared()[0]:
        fields = all_fields(name)
        pairs = [(shape_of(f.type), f"{f.name}{'?' if f.is_optional else ''}") for f in fields]
        yield f"  {name}: {_grouped(pairs)},"
    yield "};"


def _constants() -> Iterator[str]:
    """Version and magics, which builder.py declares."""
    found = {}
    for node in ast.parse((VIEW / "builder.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            target = node.targets[0]
            assert isinstance(target, ast.Name)
            found[target.id] = node.value.value
    yield f"export const VIEW_VERSION = {found['VERSION']};"
    for name in ("VIEW_MAGIC", "ANALYSES_MAGIC", "TEXT_MAGIC", "STAGES_MAGIC"):
        yield f'export const {name} = "{found[name].decode()}";'


def typescript() -> str:
    """js/view-extras.ts."""
    head = "/** Made by `npm run schema` from columns.py and header.py of python/hloscope/view. */"
    return "\n".join((head, "", *_constants(), "", *types(), "", *checks(), ""))


# For tests


def schema_of(type_: ast.expr) -> dict[str, Any]:
    if isinstance(type_, ast.BinOp):
        return {"anyOf": [schema_of(type_.left), {"type": "null"}]}
    of, inner = _subscript(type_)
    if of == "list":
        return {"type": "array", "items": schema_of(inner)}
    if of == "dict":
        return {"type": "object", "additionalProperties": schema_of(_of_dict(inner))}
    if of == "Literal":
        return {"enum": _choices(inner)}
    assert isinstance(type_, ast.Name)
    names = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
    if type_.id in names:
        return {"type": names[type_.id]}
    alias = declared()[1].get(type_.id)
    return schema_of(alias) if alias is not None else {"$ref": f"#/definitions/{type_.id}"}


@cache
def json_schema() -> dict[str, Any]:
    """The headers as a JSON schema, which allows no keys that are not declared."""
    definitions = {}
    for name in declared()[0]:
        fields = all_fields(name)
        definitions[name] = {
            "type": "object",
            "properties": {f.name: schema_of(f.type) for f in fields},
            "required": [f.name for f in fields if not f.is_optional],
            "additionalProperties": False,
        }
    return {"$ref": "#/definitions/Blocks", "definitions": definitions}


# For the docs


def page() -> str:
    """Columns and headers as Markdown."""
    out: list[str] = []
    for title, tables in columns().CHAPTERS.items():
        out += [f"## {title}", ""]
        for table in tables:
            out += [*_table(table), ""]
    out += ["## Headers", ""]
    for name, type_ in declared()[1].items():
        out += [f"`{name}` is {', '.join(f'`{c}`' for c in _choices(_subscript(type_)[1]))}.", ""]
    for one in declared()[0].values():
        out += [f"### {one.name}", "", one.about, "", "| key | type | |", "|---|---|---|"]
        for field in all_fields(one.name):
            type_ = type_of(field.type).replace("|", "\\|")
            absent = "may be absent" if field.is_optional else ""
            about = "; ".join(filter(None, (field.about.rstrip("."), absent)))
            out.append(f"| `{field.name}` | `{type_}` | {_escaped(about)} |")
        out.append("")
    return "\n".join(out)


def _table(table: Any) -> Iterator[str]:
    yield f"### {table.name}.*"
    yield ""
    if table.about:
        yield _escaped(table.about)
        yield ""
    yield "| column | type | rows | holds | |"
    yield "|---|---|---|---|---|"
    for column in table.columns:
        rows = column.rows or table.rows
        rows = {columns().UNCOUNTED: "", f"{table.name}.{column.name}": ""}.get(rows, rows)
        if column.holds == columns().OFFSETS:
            holds = f"offsets into {column.splits}"
        elif column.holds in (columns().ANY, columns().AMOUNT):
            holds = column.unit
        else:
            holds = column.holds + (" or -1" if column.has_none else "")
        absent = "may be absent" if column.may_be_absent and "absent" not in column.about else ""
        name = f"{table.name}.{column.name}"
        about = _escaped("; ".join(filter(None, (column.about, absent))))
        yield f"| `{name}` | {column.dtype} | {rows} | {holds} | {about} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    OUT.write_text(typescript())
