"""What the side panel is told: markers of outputs, and which captures are alive."""

from __future__ import annotations

import gc
import json

import hloscope as hs
import pytest
from hloscope.show import shown
from hloscope.show.notebook.widget import MARKER

MODULE = """HloModule jit_f, is_scheduled=true, num_partitions=2

ENTRY %main (x: f32[64]) -> f32[64] {
  %x = f32[64]{0} parameter(0)
  %tanh.1 = f32[64]{0} tanh(%x)
  ROOT %all-reduce.2 = f32[64]{0} all-reduce(%tanh.1), replica_groups={{0,1}}, to_apply=%add
}
"""


def listing():
    return shown.listing()._repr_mimebundle_()["application/json"]


def test_an_output_says_what_it_shows(monkeypatch):
    monkeypatch.setattr("hloscope.show.html.frame", lambda *_, **__: "")  # needs the built renderer
    cap = hs.read(MODULE)
    marker = cap._repr_mimebundle_()[0][MARKER]
    assert json.loads(json.dumps(marker)) == marker
    assert marker["title"] == marker["module"] == "jit_f"
    assert marker["instructions"] == 3
    assert marker["peak_bytes"] == cap.memory.peak_bytes > 0
    assert marker["collectives"] == 1
    # a ring of two: each sends 2 * (2 - 1) / 2 of the 256 bytes
    assert marker["wire_bytes"] == 256
    assert marker["name"] == ""


def test_the_same_capture_keeps_its_identifier_and_others_have_theirs():
    one, other = hs.read(MODULE), hs.read(MODULE)
    first = shown.mark(one)["id"]
    assert shown.mark(one)["id"] == first
    assert shown.mark(other)["id"] != first


def test_listing_keeps_nothing_alive():
    cap = hs.read(MODULE)
    key = shown.mark(cap)["id"]
    assert key in listing()
    del cap
    gc.collect()
    assert key not in listing()
    with pytest.raises(LookupError, match="run its cell again"):
        shown.page(key)


def test_what_is_not_known_is_null():
    cap = hs.read("module @m {\n  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
                  "    return %a : tensor<4xf32>\n  }\n}\n")  # fmt: skip
    assert shown.mark(cap)["peak_bytes"] is None


def test_two_captures_are_compared():
    one, other = hs.read(MODULE), hs.read(MODULE.replace(" tanh(", " cosine("))
    keys = [shown.mark(c)["id"] for c in (one, other)]
    page = shown.comparison(*keys)._repr_mimebundle_()["application/json"]
    assert "<del><code>tanh</code></del>" in page


class _Proxy:
    """A variable that must not be asked for its class."""

    @property
    def __class__(self):
        raise AssertionError("asked")


def test_a_capture_is_called_by_its_variable():
    testing = pytest.importorskip("IPython.testing.globalipapp", reason="IPython is not installed")
    shell = testing.start_ipython() or testing.get_ipython()
    cap = hs.read(MODULE)
    before = dict(shell.user_ns)
    shell.user_ns.update(lazy=_Proxy(), _5=cap, best=cap, also=cap)
    try:
        key = shown.mark(cap)["id"]
        assert shown.mark(cap)["name"] == "best"
        assert listing()[key] == "best"
        found = shell.user_expressions(
            {"a": "__import__('hloscope.show.shown').show.shown.listing()"}
        )
        assert found["a"]["data"]["application/json"][key] == "best"
    finally:
        for name in set(shell.user_ns) - set(before):
            del shell.user_ns[name]
