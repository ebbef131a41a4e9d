"""``cap.add_values(…)``: a person's own numbers land by name, and what does not is named."""

from __future__ import annotations

import hloscope as hs
import numpy as np
import pytest
from hloscope.show import blocks
from hloscope.view.schema import joined

TEXT = """HloModule m

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %sine.1 = f32[8]{0} sine(%x)
  ROOT %add.2 = f32[8]{0} add(%sine.1, %x)
}
"""


@pytest.fixture
def cap() -> hs.Capture:
    return hs.read(TEXT)


def column(cap: hs.Capture) -> list[float | None]:
    found = cap.for_hosts.own_values[-1].column
    return [None if np.isnan(v) else float(v) for v in found]


def test_a_mapping_by_name_or_instruction(cap):
    shown = cap.add_values({"%sine.1": 3, cap.module.find("add.2"): 4.5}, label="misses")
    assert shown is cap
    assert column(cap) == [None, 3.0, 4.5]
    assert cap.display["colorBy"] == "own:0"


def test_a_csv_and_a_table(cap, tmp_path):
    file = tmp_path / "counters.csv"
    file.write_text("name,L2 misses,note\nsine.1,12,a\nadd.2,,b\n")
    cap.add_values(file)
    assert column(cap) == [None, 12.0, None]
    assert cap.for_hosts.own_values[0].label == "L2 misses"
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"name": ["add.2"], "hits": [1], "misses": [2]})
    with pytest.raises(ValueError, match=r"needs one column of numbers .*: hits, misses"):
        cap.add_values(table)
    cap.add_values(table, column="misses")
    assert column(cap) == [None, None, 2.0]
    cap.add_values(pandas.Series({"add.2": 7.0}, name="stalls"))
    assert [v.label for v in cap.for_hosts.own_values] == ["L2 misses", "misses", "stalls"]
    assert cap.display["colorBy"] == "own:2"


def test_what_does_not_land_is_told(cap):
    cap.add_values({"sine.1": 1.0, "fusion.9": 2.0, "fusion.10": 3.0}, label="misses")
    found = cap.for_hosts.own_values[0]
    assert found.remark == "misses: no instruction is called fusion.9, fusion.10"
    with pytest.raises(ValueError, match=r"no value lands .* called sin.1; did you mean sine.1\?"):
        cap.add_values({"sin.1": 1.0})
    with pytest.raises(ValueError, match=r"the value of sine.1 is not a number: 'much'"):
        cap.add_values({"sine.1": "much"})
    with pytest.raises(ValueError, match="not list"):
        cap.add_values([1.0, 2.0])
    with pytest.raises(ValueError, match="another module"):
        cap.add_values({hs.read(TEXT).module.find("add.2"): 1.0})


def test_it_travels_with_the_view(cap):
    from hloscope.view.schema import joined

    cap.add_values({"sine.1": 3.0, "gone": 1.0}, label="misses", unit="B")
    header, columns = joined(blocks.view(cap), blocks.analyses(cap))
    assert header["extras"]["own"] == [{"label": "misses", "unit": "B"}]
    assert columns["own.0"].tolist()[1] == 3.0
    assert "misses: no instruction is called gone." in header["warnings"]


def test_values_belong_to_the_capture_they_were_given_to() -> None:
    cap = hs.read(TEXT)
    other = hs.Capture(cap.module, title="another capture of the same module")
    cap.add_values({"sine.1": 1.0}, label="mine")
    assert "own" in joined(blocks.view(cap), blocks.analyses(cap))[0]["extras"]
    assert "own" not in joined(blocks.view(other), blocks.analyses(other))[0]["extras"]
