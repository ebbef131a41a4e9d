# ruff: noqa: E501
"""What op_names say, by tables: splitting, scopes, phases, merged names, short names."""

from __future__ import annotations

from collections import Counter

from hloscope.analysis.base.lines.op_name import (
    common,
    common_to_most,
    is_autodiff,
    merged_names,
    parse_op_name,
    relative,
    split_components,
    without_loops,
)
from hloscope.analysis.base.operands import short_op_name
from hloscope.analysis.base.phases import phases


def test_names_are_split_outside_brackets() -> None:
    table = {
        "": [""],
        "a": ["a"],
        "a/b": ["a", "b"],
        "a(b/c)/d": ["a(b/c)", "d"],
        "a[b/{c/d}]/e": ["a[b/{c/d}]", "e"],
        "a)/b": ["a)", "b"],  # a bracket too many closes nothing
        "a)(/b": ["a)(/b"],
        "a))(/b)/c": ["a))(/b)", "c"],
        "a(b/c": ["a(b/c"],
        "/a/": ["", "a", ""],
    }
    for text, parts in table.items():
        assert split_components(text) == parts, text
    assert split_components("a;b(c;d)/e", ";") == ["a", "b(c;d)/e"]


def test_what_paths_begin_with() -> None:
    a, ab, abc, abd = ("a",), ("a", "b"), ("a", "b", "c"), ("a", "b", "d")
    assert common([abc]) == abc
    assert common([abc, abd]) == ab
    assert common([abc, ab]) == ab
    assert common([ab, ab]) == ab
    assert common([abc, ("x",)]) == ()
    assert common([abc, ()]) == ()
    most = Counter({abc: 6, abd: 3, ("x",): 1})
    table = {0.5: abc, 0.6: abc, 0.61: ab, 0.9: ab, 0.91: (), 1.0: ()}
    for share, path in table.items():
        assert common_to_most(most, share) == path, share
    assert common_to_most(Counter({a: 1}), 1.0) == a
    assert common_to_most(Counter(), 0.5) == ()


def test_scopes_of_names() -> None:
    f, b = "forward", "backward"
    table: dict[str, tuple[str, ...] | None] = {
        "broadcast.29": None,
        "jit(step)/mul": (),
        "jit(step)/jit(main)/mlp/mul": ("mlp",),
        "jit(step)/transpose(jvp(layer_0))/mlp/dot_general": (b, "layer_0", "mlp"),
        "jit(step)/jit(main)/jvp(GPT)/h/3/3/attn/bld,bmd->blm/mul": (f, "GPT", "h/3", "attn"),
        "jit(step)/(a/mul:a/b/add)": ("a",),
        "jit(step)/x/(a/mul:a/b/add)": ("x", "a"),
        "jit(step)/(a/mul)": (),
        "jit(step)/a/mul;jit(step)/a/b/add": ("a",),
        "jit(step)/a/mul;jit(step)/b/add": ("a",),  # nothing in common: the first
        "jit(step)/a/mul;broadcast.3": ("a",),
        "jit(step)/a/while/body/mul": ("a", "while", "body"),
        "jit(step)/while/body/jvp(a)/mul": (f, "a"),  # a loop over batches is no place
        "jit(step)/x/while/body/jvp(a)/mul": ("x", "while", "body", f, "a"),
        "jit(step)/vmap(a)/mul": ("a",),
        "jit(step)/jvp(jit(a))/mul": (f, "a()"),
        "jit(step)/a/jit(b)/mul": ("a", "b()"),
        "jit(step)/checkpoint(a)/b/mul": ("b",),
        "jit(step)/strange(a)/mul": ("strange(a)",),
        "jit(step)/a[x=1]/mul": ("a",),
        "jit(step)/[x=1]/mul": (),
        "jit(step)/ a /mul": ("a",),
        "jit(step)/a/a/mul": ("a",),
        "jit(step)/a/b/a/mul": ("a", "b", "a"),
        "jit(step)/h/3/mul": ("h/3",),
        "jit(step)/h/3/4/mul": ("h/3/4",),
        "jit(step)/h/3/3/mul": ("h/3",),
        "jit(step)/3/3/mul": ("3/3",),
        "jit(step)/jvp()/3/mul": (f, "3"),
        "jit(step)/transpose(jvp())/3/mul": (b, "3"),
        "jit(step)/A.apply/A/mul": ("A",),
        "jit(step)/B/A.apply/C/mul": ("B", "A.apply", "C"),
        "jit(step)/transpose(jvp(a))/jvp(b)/mul": (b, "a", "b"),
        "jvp(a)/mul": (f, "a"),
        "a/b/mul": ("a", "b"),
        "jit(step)/transpose(jvp())/checkpoint/rematted_computation/layer_3/mlp/tanh":
            (b, "layer_3", "rematted_computation", "mlp"),
        "jit(step)/transpose(jvp())/rematted_computation/mlp/tanh": (b, "rematted_computation", "mlp"),
        "jit(step)/transpose(jvp())/rematted_computation/tanh": (b, "rematted_computation"),
        "jit(step)/transpose(jvp())/rematted_computation/h/3/tanh": (b, "h/3", "rematted_computation"),
        "jit(step)/closed_call/~/main/a/mul": ("a",),
        "jit(step)/a/mul[b=1;c=2]": ("a",),
        "jit(step)/a/x-y": ("a",),
    }  # fmt: skip
    for name, path in table.items():
        assert parse_op_name(name) == path, name


def test_paths_inside_a_caller() -> None:
    f, b = "forward", "backward"
    table = [
        (("a", "b"), ("a",), ("b",)),
        (("a", "b"), ("a", "b"), ()),
        (("a", "b"), ("x",), ("a", "b")),
        (("a",), ("a", "b"), ("a",)),
        ((f, "b"), (f, "c"), ("b",)),
        ((f, "b"), (b, "c"), (f, "b")),
        (("a", "b"), ("a", "c"), ("a", "b")),
        ((), ("a",), ()),
        (("a",), (), ("a",)),
        (("a", "while", "body", "b", "while"), ("a",), ("b", "while")),
        (("branch_1_fun", "cond", "b"), (), ("b",)),
        (("while", "body"), (), ()),
    ]
    for path, base, want in table:
        assert relative(path, base) == want, (path, base)
    loops = {
        ("a", "while", "body", "b"): ("a", "b"),
        ("a", "body", "b"): ("a", "body", "b"),
        ("while", "cond", "while", "body", "body"): (),
        ("while", "a", "body"): ("a", "body"),
        (): (),
    }
    for path, want in loops.items():
        assert without_loops(path) == want, path


def test_what_a_merged_name_stands_for() -> None:
    table = {
        "f/mul": ["f/mul"],
        "f/(a/psum:b/psum)": ["f/a/psum", "f/b/psum"],
        "f/a;f/b": ["f/a", "f/b"],
        "f/(a:b);g": ["f/a", "f/b", "g"],
        "f/(a)": ["f/(a)"],
        "f:g/(a)": ["f:g/(a)"],
        "f(a:b)": ["f(a:b)"],
        "f/(a:b)/c": ["f/(a:b)/c"],
        "f/(a(x:y):b)": ["f/a(x:y)", "f/b"],
    }
    for name, want in table.items():
        assert merged_names(name) == want, name
        if name != "f(a:b)":
            assert phases.merged_names(name) == want, name
    assert merged_names("(a:b)") == ["a", "b"]
    assert phases.merged_names("f/(g/(a:b):c)") == ["f/g/a", "f/g/b", "f/c"]
    autodiff = {
        "jit(f)/transpose(jvp())/a": True,
        "jit(f)/jvp()/a": False,
        "jit(f)/transpose(jvp())/rematted_computation/a": False,
        "jit(f)/(transpose(jvp())/a:jvp()/b)": False,
        "jit(f)/transpose(jvp())/(a:b)": True,
    }
    for name, found in autodiff.items():
        assert is_autodiff(name) == found, name


def test_phases_that_names_say() -> None:
    u, f, b, r, o = range(5)
    table = {
        "": u, "adam": u, "params['adam']": u, "jit(f)/a": u,
        "jit(f)/jvp(a)/mul": f, "jvp(a)/mul": f, "jit(f)/vmap(jvp(a))/mul": f, "jit(f)/xjvp(a)/mul": u,
        "jit(f)/transpose(jvp(a))/mul": b, "transpose(jvp())/mul": b, "jit(f)/vmap(transpose(jvp()))/mul": b,
        "jit(f)/xtranspose(a)/mul": u, "jit(f)/transpose/mul": u,
        "jit(f)/transpose(jvp())/rematted_computation/a": r, "rematted_computation/a": r,
        "jit(f)/my_rematted_computation/a": u,
        "jit(f)/adam/mul": o, "jit(f)/AdamW/mul": o, "jit(f)/optimizer_step/mul": o, "sgd/mul": o,
        "jit(f)/vmap(lamb)/mul": o, "jit(f)/apply_updates/add": o, "jit(f)/apply_gradients/add": o,
        "jit(f)/adams_layer/mul": o, "jit(f)/my_adam/mul": u, "jit(f)/option/mul": u, "jit(f)/sgdx/mul": u,
        "jit(f)/jvp(adam)/mul": f,
    }  # fmt: skip
    for name, phase in table.items():
        assert phases.name_phase(name) == phase, name
    several = {
        "jit(f)/jvp(a)/mul": (f,),
        "jit(f)/a": (u,),
        "jit(f)/(transpose(jvp())/a:jvp()/b)": (f, b),
        "jit(f)/jvp()/b;jit(f)/jvp()/c": (f,),
        "jit(f)/a;jit(f)/b": (u,),
        "jit(f)/a;jit(f)/jvp()/b": (f, o),
        "jit(f)/adam/a;jit(f)/transpose(jvp())/rematted_computation/b;jit(f)/transpose(jvp())/b": (
            r,
            b,
            o,
        ),
    }
    for name, found in several.items():
        assert phases.name_phases(name) == found, name


def test_short_names() -> None:
    table = {
        "": "",
        "jit(step)/jvp(layer_0)/mlp/dot_general": "layer_0/mlp/dot_general",
        "jit(step)": "",
        "jit(step)/jit(main)/mul": "mul",
        "xmap(step)/mul": "mul",
        "jvp(a)/mul": "a/mul",
        "transpose(jvp(a))/mul": "a/mul",
        "a/jit(relu)/max": "a/max",
        "a/vmap(jit(relu))/max": "a/max",
        "a/jit(f(x))/max": "a/f(x)/max",
        "a/transpose(jvp())/while/body/closed_call/b/mul": "a/b/mul",
        "jit(f)/a/mul;jit(f)/b/add": "a/mul",
        "jit(f)/a/mul[x=jit(f)/b]": "a/mul",
        "a/jvp(b": "a/jvp(b",
        "a//b": "a/b",
    }
    for name, want in table.items():
        assert short_op_name(name) == want, name
