"""The analytic transformer: every value of a printed notebook, and what it leaves to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.plan.transformer.layers import Layer
from hloscope.plan.transformer.rates import Rates
from hloscope.plan.transformer.transformer import Transformer

# The notebook's system: peaks in FLOP/s and B/s, NVLink for up to 4 devices.
RATES = Rates("A100", 312e12, 78e12, 1555e9, ((4, 600e9), (0, 100e9)))


@pytest.fixture(scope="module")
def printed(seeds: Path) -> list[str]:
    return next(seeds.glob("003_*")).read_text().splitlines()


@pytest.fixture(scope="module")
def model() -> Transformer:
    return hs.transformer(
        batch=1, seq=2048, embed=12288, heads=96, depth=96, mesh={"tensor": 4}, hardware=RATES,
        wire="whole",
    )  # fmt: skip


def row(m: Transformer, layer: Layer) -> dict[str, Any]:
    """A layer as the notebook names and scales it: TFLOP, GB, ms."""
    t, gb, ms = m.time(layer), 1e-9, 1e3
    out: dict[str, Any] = {
        "layer": layer.name,
        "flops_fwd": layer.flops_fwd * 1e-12,
        "flops_bwd": layer.flops_bwd * 1e-12,
        "activation_in_mem": layer.in_bytes * gb,
        "activation_in_other_mem": layer.other_in_bytes * gb,
        "activation_out_mem": layer.out_bytes * gb,
        "activation_buffer": layer.kept_bytes * gb,
        "weights_mem": layer.weight_bytes * gb,
        "total_mem_fwd": layer.bytes_fwd * gb,
        "activation_grad_mem": layer.gradient_bytes * gb,
        "weights_grad_mem": layer.weight_bytes * gb,
        "total_mem_bwd": layer.bytes_bwd * gb,
        "intensity": t.intensity,
    }
    for way in ("fwd", "bwd"):
        found = getattr(layer, f"exchanges_{way}")
        out[f"comm_{way}"] = m.sent(found[0]) * gb if found else None
        out[f"comm_{way}_type"] = found[0].kind.replace("-", "") if found else None
        out[f"t_comp_{way}"] = getattr(t, f"compute_{way}") * ms
        out[f"t_mem_{way}"] = getattr(t, f"memory_{way}") * ms
        out[f"t_{way}"] = getattr(t, f"busy_{way}") * ms
        out[f"t_comm_{way}"] = getattr(t, f"wire_{way}") * ms
        out[f"t_total_{way}"] = getattr(t, way) * ms
        out[f"frac_t_comm_{way}"] = getattr(t, f"wire_{way}") / getattr(t, way)
    both = (*layer.exchanges_fwd, *layer.exchanges_bwd)
    out["comm_size"] = both[0].size if both else None
    rates = [rate for _, rate in m.rates.links]
    link = m.rates.link(both[0].size) if both else None
    out["comm_topology"] = None if link is None else ("nvlink", "ib")[rates.index(link)]
    return out


def same(ours: Any, cell: str) -> bool:
    if ours is None or isinstance(ours, str):
        return (ours or "") == cell
    return bool(cell) and round(ours, 6) == float(cell)


def test_every_printed_value(printed: list[str], model: Transformer) -> None:
    """454 of 454: two tables, their sums over 96 blocks, the shares of communication."""
    wrong, count = [], 0
    heads = [n for n, line in enumerate(printed) if line.startswith("Unnamed: 0,")]
    for head, block in zip(heads, ("mlp", "attention"), strict=True):
        names = printed[head].split(",")[1:]
        rows = [row(model, layer) for layer in model.blocks[block]]
        for n, ours in enumerate(rows, start=head + 1):
            for name, cell in zip(names, printed[n].split(",")[1:], strict=True):
                count += 1
                if not same(ours[name], cell):
                    wrong.append((block, ours["layer"], name, cell, ours[name]))
        for line in printed[head + 1 + len(rows) :]:
            total = re.match(r"(\w+)\s+([\d.]+)$", line)
            if total:
                count += 1
                ours_sum = 96 * sum(r[total[1]] for r in rows)
                if f"{ours_sum:.6f}" != total[2]:
                    wrong.append((block, "sum", total[1], total[2], ours_sum))
            if line.startswith("time spend in comms"):
                count += 1
                share = sum(r["t_comm_fwd"] for r in rows) / sum(r["t_total_fwd"] for r in rows)
                assert share == pytest.approx(float(line.split("=")[1]), rel=1e-12)
                break
    assert wrong == []
    assert count == 454


def test_one_device_sends_nothing() -> None:
    m = hs.transformer(embed=512, heads=8, depth=2, hardware="h100")
    assert all(not x.exchanges_fwd and not x.exchanges_bwd for b in m.blocks.values() for x in b)
    assert m.totals.wire_bytes == {}
    assert m.totals.seconds["bubble"] == 0


def test_a_pipeline_idles_while_it_fills() -> None:
    kw = {"embed": 512, "heads": 8, "depth": 8, "batch": 8, "hardware": "h100"}
    m = hs.transformer(mesh={"pipeline": 4}, microbatches=8, **kw)
    t = m.totals.seconds
    busy = t["matmuls"] + t["other layers"]
    assert t["bubble"] == pytest.approx(busy / 8 * 3)


def test_fsdp_holds_a_share_and_sends_three_times() -> None:
    kw = {"embed": 512, "heads": 8, "depth": 2, "batch": 8, "hardware": "h100"}
    plain = hs.transformer(mesh={"data": 8}, **kw).totals
    shared = hs.transformer(mesh={"data": 8}, fsdp=True, **kw).totals
    assert shared.memory["optimizer state"] == plain.memory["optimizer state"] / 8
    # all-gather twice and reduce-scatter once, where an all-reduce is two of them
    assert shared.wire_bytes["weights"] == pytest.approx(plain.wire_bytes["weights"] * 3 / 2)


def test_parameters_add_up_over_all_devices() -> None:
    base = hs.transformer(embed=512, heads=8, depth=2, hardware="h100")
    held = sum(x.parameters for b in base.blocks.values() for x in b) * 2
    assert held == base.totals.parameters
    for mesh, copies in (({"tensor": 4}, 1), ({"tensor": (2, 2)}, 1), ({"tensor": (2, 2, 2)}, 1)):
        m = base.with_sizes(mesh=mesh)
        split = 1
        for n in m.sizes.tensor:
            split *= n
        grid = sum(
            x.parameters for b in m.blocks.values() for x in b if x.name in ("qkv_proj", "fc1")
        )
        one = sum(
            x.parameters for b in base.blocks.values() for x in b if x.name in ("qkv_proj", "fc1")
        )
        assert grid * split == pytest.approx(one * copies)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"heads": 7}, "embed 4096 does not divide by 7 (heads)"),
        ({"mesh": {"tensor": 5}}, "heads 32 does not divide by 5 (the tensor axis)"),
        ({"mesh": {"rows": 2}}, "the mesh has an axis 'rows'"),
        ({"mesh": {"data": 3}}, "batch 1 does not divide by 3 (data × microbatches)"),
        ({"recompute": "some"}, "recompute is 'some'; there are none, attention, block"),
        ({"seq": 0}, "seq is 0; it must be at least 1"),
        ({"wire": "star"}, "wire is 'star'"),
        ({"sequence": 4}, "a transformer has no 'sequence'"),
    ],
)
def test_sizes_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        hs.transformer(**{"hardware": "h100", **given})


def test_a_chip_without_published_vector_rate_takes_memory_time() -> None:
    m = hs.transformer(embed=512, heads=8, depth=2, hardware="tpu-v6e")
    act = next(x for x in m.blocks["mlp"] if x.name == "act")
    assert m.rates.vector is None
    assert m.time(act).compute_fwd is None
    assert m.time(act).fwd == act.bytes_fwd / m.rates.memory_bandwidth


def test_best_meshes_are_all_meshes_in_order() -> None:
    m = hs.transformer(embed=1024, heads=16, depth=4, batch=16, hardware="h100")
    found = m.best_meshes(8, limit=1000)
    times = [(x.totals.fits is False, x.totals.step_seconds) for x in found]
    assert times == sorted(times)
    assert all(x.sizes.devices == 8 for x in found)
    with pytest.raises(ValueError, match="no mesh of 7 devices"):
        m.best_meshes(7)


def test_shows_itself_as_text_data_and_page(model: Transformer, tmp_path: Path) -> None:
    assert "all figures modelled" in repr(model)
    assert model.to_dict()["totals"]["step_seconds"] > 0
    assert len(model.to_pandas()) == 14
    small = model.explore(batch=[1], chips=[4, 8])
    page = Path(small.to_html(tmp_path / "model.html")).read_text()
    assert "http" not in page.split("<script>")[0].replace("http-equiv", "").replace("https://", "")
    data, _ = small._repr_mimebundle_()
    assert "iframe" in data["text/html"]
    section = small.view["sections"][1]
    assert [s["name"] for s in section["sliders"]] == ["batch", "chips"]
    assert len(section["cases"]) == 2


def test_every_mesh_shares_the_same_work() -> None:
    """No device does another's: FLOPs of all devices are those of one that has it all."""
    model = hs.transformer(
        batch=64, seq=1024, embed=1024, heads=16, depth=4, experts=8,
        top_k=2, hardware="tpu-v5p",
    )  # fmt: skip
    whole = model.totals.flops
    found = model.best_meshes(16, limit=1000)
    assert {a for m in found for a in m.sizes.mesh} == {"data", "context", "expert", "pipeline"}
    for m in found:
        assert m.totals.flops * 16 == pytest.approx(whole, rel=0.01), m.sizes.mesh


def test_gradients_are_summed_over_all_that_hold_the_same_weights() -> None:
    def sent(mesh: dict[str, int], **options: Any) -> float:
        model = hs.transformer(
            batch=16, seq=1024, embed=1024, heads=16, depth=4, mesh=mesh, hardware="h100",
            **options,
        )  # fmt: skip
        return model.totals.wire_bytes.get("weights", 0.0)

    assert sent({"context": 8}) == sent({"data": 8}) == sent({"data": 4, "context": 2}) > 0
    # experts are held by fewer: of each a device has a part, and data alone holds it again
    moe: dict[str, Any] = {"experts": 8, "top_k": 2}
    rest = sent({"data": 8}) - 7 / 4 * 4 * 2 * (8 * 1024**2 + 5 * 1024)
    router = 7 / 4 * 4 * 2 * 1024 * 8
    assert sent({"expert": 8}, **moe) == pytest.approx(rest + router)


# without biases, with norms that have a scale only: most models since 2023
PLAIN: dict[str, Any] = {"bias": False, "norm": "rms", "dropout": False, "gated": True}


@pytest.mark.parametrize(
    ("sizes", "published"),
    [
        pytest.param(
            {"embed": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336, "depth": 32,
             "vocab": 128256, "tied": False},
            8_030_261_248, id="Llama 3 8B",
        ),
        pytest.param(
            {"embed": 3584, "heads": 16, "kv_heads": 8, "head_dim": 256, "hidden": 14336,
             "depth": 42, "vocab": 256000, "post_norms": True},
            9_241_705_984, id="Gemma 2 9B",
        ),
        pytest.param(
            {"embed": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336, "depth": 32,
             "vocab": 32000, "tied": False, "experts": 8},
            46_702_792_704, id="Mixtral 8x7B",
        ),
        pytest.param(
            # all blocks but the first, which has a dense MLP of 10944
            {"embed": 2048, "heads": 16, "hidden": 1408, "depth": 27, "vocab": 102400,
             "tied": False, "experts": 64, "top_k": 6, "shared_experts": 2},
            16_375_728_128 - (4 * 2048**2 + 3 * 2048 * 10944 + 2 * 2048), id="DeepSeekMoE 16B",
        ),
    ],
)  # fmt: skip
def test_parameters_of_published_models(sizes: dict[str, Any], published: int) -> None:
    assert hs.transformer(**sizes, **PLAIN, hardware="h100").totals.parameters == published


def test_parameters_held_are_those_of_the_model() -> None:
    kw = {"embed": 512, "heads": 8, "head_dim": 32, "depth": 2, "hardware": "h100", "vocab": 1000}
    for more in ({}, {"experts": 4, "shared_experts": 1}, {"post_norms": True, "tied": False}):
        found = hs.transformer(**kw, **PLAIN, **more).totals
        assert found.memory["weights"] == 2 * found.parameters


def test_dropout_changes_no_exchange() -> None:
    """The gradient is gathered for the layer that needs it whole, with dropout before it or not."""
    for mesh in ({"tensor": 8}, {"tensor": 4, "data": 2}):
        kw: dict[str, Any] = {"embed": 512, "heads": 8, "depth": 3, "batch": 8, "seq": 64}
        one, other = (
            hs.transformer(mesh=mesh, dropout=d, hardware="h100", **kw).totals
            for d in (True, False)
        )
        assert one.wire_bytes == other.wire_bytes
        # four gathers and four scatters of b·l·e a block
        m = mesh["tensor"]
        whole = 8 * 64 * 512 * 2 / mesh.get("data", 1)
        assert other.wire_bytes["tensor"] == 3 * 8 * whole * (m - 1) / m


def test_a_gated_layer_keeps_both_halves() -> None:
    kw: dict[str, Any] = {"batch": 1, "seq": 1024, "embed": 512, "heads": 8, "hidden": 2048}
    kw |= {"depth": 1, "dropout": False, "hardware": "h100"}
    acts = [
        next(x for x in hs.transformer(gated=g, **kw).blocks["mlp"] if x.name == "act")
        for g in (False, True)
    ]
    n = 1024 * 2048
    assert [x.kept_bytes for x in acts] == [2 * n, 4 * n]
    assert [x.in_bytes for x in acts] == [2 * n, 4 * n]
    assert [x.out_bytes for x in acts] == [2 * n, 2 * n]
    assert [x.flops_fwd for x in acts] == [n, 2 * n]


def test_heads_of_a_width_of_their_own() -> None:
    kw: dict[str, Any] = {"batch": 1, "seq": 128, "embed": 384, "heads": 7, "kv_heads": 1}
    found = hs.transformer(head_dim=64, depth=1, hardware="h100", **kw)
    layers = {x.name: x for x in found.blocks["attention"]}
    assert layers["qkv_proj"].parameters == 384 * 64 * (7 + 2)
    assert layers["v_proj"].parameters == 7 * 64 * 384 + 384
    assert layers["logits"].in_bytes == 2 * 128 * 7 * 64
    with pytest.raises(ValueError, match="embed 384 does not divide by 7"):
        hs.transformer(depth=1, hardware="h100", **kw)
