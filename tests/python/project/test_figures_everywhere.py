"""One figure has one value: in the summary, in Python, in tables, in the View, in the CLI."""

from __future__ import annotations

import json

import hloscope as hs
import pytest
from figures_everywhere import differing, told
from hloscope.show.cli import main

ON_CPU = ["gpt_scan", "switch_four", "while_unknown", "cnn_step", "moe_einsum"]
ON_TPU = ["gpt_remat", "fsdp_tp"]


@pytest.mark.parametrize("name", ON_CPU)
def test_all_places_agree(compiled, name):
    figures = told(compiled(name).capture)
    assert differing(figures) == {}
    assert sum(map(len, figures.values())) > 60


@pytest.mark.parametrize("name", ON_TPU)
def test_all_places_agree_on_tpu(compiled, libtpu, name):
    figures = told(compiled(name, "v5e:2x4").capture)
    assert differing(figures) == {}
    assert len(figures["seconds"]) > 6


def test_the_command_line_says_what_python_says_of_a_dump(compiled, tmp_path, capsys):
    path = tmp_path / "step.hlo"
    path.write_text(compiled("gpt_scan").text)
    cap = hs.read(path, hardware="tpu-v5e")
    assert differing(told(cap)) == {}
    plain = json.loads(json.dumps(cap.summary))
    assert main(["summary", "--json", "--hardware", "tpu-v5e", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == plain
    assert main(["json", "--hardware", "tpu-v5e", str(path)]) == 0
    page = json.loads(capsys.readouterr().out)["header"]["summary"]
    assert {k: v for k, v in plain.items() if k in page} == page | {"warnings": plain["warnings"]}
