"""How hosts that are not asked by ``_repr_mimebundle_`` get a capture; none is installed here."""

from __future__ import annotations

import sys
import types

import hloscope as hs
import pytest
from hloscope.show.notebook import explorer_widget, hosts

TEXT = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"


@pytest.fixture
def capture():
    return hs.read(TEXT)


def test_panel_gets_a_pane_with_the_page(monkeypatch, capture):
    made = {}

    def html(text, **options):
        made.update(options, text=text)
        return "pane"

    fake = types.ModuleType("panel")
    fake.pane = types.SimpleNamespace(HTML=html)
    monkeypatch.setitem(sys.modules, "panel", fake)
    capture.display["height"] = 500
    assert capture.__panel__() == "pane"
    assert made["text"].startswith("<iframe ")
    assert made["min_height"] == 508


def test_marimo_gets_the_live_widget(capture):
    capture.display["panel"] = "cost"
    made = capture._display_()
    assert isinstance(made, explorer_widget.HloscopeWidget)
    assert made._options == {"panel": "cost"}


def test_marimo_gets_the_page_without_anywidget(monkeypatch, capture):
    fake = types.ModuleType("marimo")
    fake.Html = lambda text: ("html", text)
    monkeypatch.setitem(sys.modules, "marimo", fake)
    monkeypatch.setitem(sys.modules, "hloscope.show.notebook.explorer_widget", None)
    kind, text = capture._display_()
    assert kind == "html"
    assert text.startswith("<iframe ")


@pytest.mark.parametrize("fails", [False, True])
def test_colab_is_asked_for_widgets(monkeypatch, fails):
    asked = []

    def enable():
        asked.append(True)
        if fails:
            raise RuntimeError("an older Colab")

    fake = types.ModuleType("google.colab")
    fake.output = types.SimpleNamespace(enable_custom_widget_manager=enable)
    monkeypatch.setitem(sys.modules, "google.colab", fake)
    hosts.allow_widgets_in_colab()
    assert asked == [True]


def test_elsewhere_colab_is_left_alone(monkeypatch):
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    hosts.allow_widgets_in_colab()
