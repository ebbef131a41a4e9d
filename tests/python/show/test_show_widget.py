"""What a capture gives a notebook, and how the widget answers the browser."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.show import blocks, static
from hloscope.show.notebook import widget

HLO = """HloModule jit_step

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} tanh(%x)
}
"""


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hs.Capture:
    (tmp_path / "explorer.js").write_text("var hloscope={}")
    monkeypatch.setattr(static, "STATIC", tmp_path)
    static._bundle.cache_clear()
    (tmp_path / "step.hlo").write_text(HLO)
    yield hs.read(tmp_path / "step.hlo")
    static._bundle.cache_clear()


def pretend_kernel(monkeypatch: pytest.MonkeyPatch, *, allow_stdin: bool) -> None:
    shell = types.SimpleNamespace(kernel=types.SimpleNamespace(_allow_stdin=allow_stdin))
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_without_a_kernel_there_is_a_page_and_a_summary(capture: hs.Capture) -> None:
    data, metadata = widget.mimebundle(capture)
    assert list(data) == ["text/plain", "text/html", widget.MARKER]
    assert data["text/html"].startswith("<iframe ")
    assert "jit_step" in data["text/plain"]
    assert metadata == {}


def test_with_a_front_end_there_is_a_widget_too(
    capture: hs.Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    import hloscope.show.notebook.explorer_widget  # noqa: F401
    import ipywidgets  # noqa: F401  (asks the real IPython while it loads)

    pretend_kernel(monkeypatch, allow_stdin=True)
    data, _ = widget.mimebundle(capture)
    assert data[widget.WIDGET]["model_id"]


def test_a_large_module_is_shown_before_it_is_analysed(
    capture: hs.Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    from hloscope.show import html

    monkeypatch.setattr("hloscope.show.text.AT_ONCE", 1)
    monkeypatch.setattr(html, "ANALYSED_FIRST", 1)
    pretend_kernel(monkeypatch, allow_stdin=True)
    data, _ = widget.mimebundle(capture)
    assert not capture.for_hosts.is_answered("summary")
    assert not blocks.is_made(capture, "analyses")
    assert "  instructions  2 (2 in ENTRY)" in data["text/plain"]
    assert "  cost " not in data["text/plain"]
    assert "id=&quot;hloscope-view&quot;" in data["text/html"]
    assert "id=&quot;hloscope-analyses&quot;" not in data["text/html"]
    assert "saved before they were worked out" in data["text/html"]
    assert blocks.analyses(capture)  # as the browser asks for them
    data, _ = widget.mimebundle(capture)
    assert "id=&quot;hloscope-analyses&quot;" in data["text/html"]


def test_where_nobody_waits_a_large_module_is_analysed(
    capture: hs.Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hloscope.show import html

    monkeypatch.setattr(html, "ANALYSED_FIRST", 1)
    data, _ = widget.mimebundle(capture)
    assert "id=&quot;hloscope-analyses&quot;" in data["text/html"]


def test_a_notebook_keeps_the_summary_of_a_module_that_is_too_large(
    capture: hs.Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hloscope.show import html

    monkeypatch.setattr(html, "FRAME_MOST_BYTES", 1_000)
    text = widget.mimebundle(capture)[0]["text/html"]
    assert "too much for a notebook to keep" in text
    assert "capture.to_html" in text
    assert "jit_step" in text
    assert "iframe" not in text
    assert len(text) < 3_000


def test_a_run_without_a_front_end_gets_no_widget(
    capture: hs.Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_kernel(monkeypatch, allow_stdin=False)
    data, _ = widget.mimebundle(capture)
    assert widget.WIDGET not in data


@pytest.fixture
def live(capture: hs.Capture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A widget whose messages to the browser are kept in ``.sent``."""
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    made = widget.widget(capture, colorBy="bytes")
    sent: list[tuple[Any, Any]] = []
    monkeypatch.setattr(made, "send", lambda content, buffers=None: sent.append((content, buffers)))
    return types.SimpleNamespace(widget=made, sent=sent, capture=capture)


def test_the_widget_carries_the_view_and_sends_text_when_asked(live: Any) -> None:
    assert live.widget._view == blocks.view(live.capture)
    assert live.widget._options == {"colorBy": "bytes"}
    live.widget._answer(None, {"kind": "text", "id": 7}, [])
    assert live.sent == [({"kind": "text", "id": 7}, [blocks.text(live.capture)])]


def test_analyses_go_along_while_small_and_come_when_asked(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    assert live.widget._analyses == blocks.analyses(live.capture)
    monkeypatch.setattr("hloscope.show.text.AT_ONCE", 0)
    assert widget.widget(live.capture)._analyses == b""
    live.widget._answer(None, {"kind": "analyses", "id": 9}, [])
    assert live.sent == [({"kind": "analyses", "id": 9}, [blocks.analyses(live.capture)])]


def test_the_widget_answers_errors_and_ignores_strangers(live: Any) -> None:
    live.widget._answer(None, {"kind": "other"}, [])
    live.widget._answer(None, "junk", [])
    assert live.sent == []
    live.widget._capture = None
    live.widget._answer(None, {"kind": "text", "id": 8}, [])
    ((reply, buffers),) = live.sent
    assert reply["kind"] == "error"
    assert reply["id"] == 8
    assert "Error" in reply["message"]
    assert buffers is None
