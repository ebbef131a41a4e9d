"""Whether proved changes make nothing worse than their proofs say, on ordinary programs.

    python benchmarks/proofs_hold.py FOLDER [NAME ...]

The advice of the findings of each program is tried, as ``cap.findings.prove()`` does; then each
change that was proved is carried out once more, by itself, and compared with what its proof says:

- step, peak, wire, FLOPs, bytes and instructions are those of the proof, and none of them is more
  than 2 % worse than before unless the proof's own sentence or its table says so;
- it takes no more than half as much again of CPU to compile;
- where the program fits this machine it is run with and without the change, on the same random
  inputs: the values agree, or the change is one that may alter them.

Advice that no change follows is printed as "by hand"; the last line counts each kind.

NAMEs are programs of ``benchmarks/people`` and ``benchmarks/ordinary``, by default ``USUAL``, on
eight devices of the CPU, modelled on a TPU v5e; NAME.tpu is one of ``ordinary`` compiled for
v5e:2x4, which needs libtpu and runs nothing. Each runs in a process of its own with a limit of
time, and its lines stay in FOLDER/NAME.txt, so that a run that was cut short goes on where it was.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

LIMIT_SECONDS = 400  # of a program; most need a tenth of it
ENOUGH_SECONDS = 90  # no further change of a program is begun after these
WORSE = 0.02  # as in ``Proof``: less is layouts and schedules
SLOWER_TO_COMPILE = 1.5  # times, and a second: less is chance on a machine with other work
SAME = 1e-2  # of the largest value: sums in another order stay far below

USUAL = (
    "mlp", "autoencoder", "wave", "lora", "policy", "q_learning", "recommender", "graph_attention",
    "contrastive", "radiance", "noise", "spectral", "target_network", "inner_loop", "messages",
    "data_parallel", "tensor_parallel", "sharded_weights", "fully_sharded", "gathered", "by_hand",
    "lstm_scanned", "recurrent", "llama_scanned", "llama_scanned_remat", "linen_scanned",
    "scanned_nnx", "coupling", "variational", "fluid", "process", "ensemble", "ring_trained",
    "adversaries", "expert_parallel", "stages", "pipeline", "molecules", "forces", "filtered",
    "masked", "informed", "rwkv", "two_towers", "muon", "accumulated", "differential", "retention",
    "tp_mlp_shardmap", "pinn", "td3", "sac", "gnn", "dlrm", "fno_rollout", "topk_sae",
    "recsys_sharded", "llama_fsdp", "gpt_accum_dp", "mae", "maml", "vqvae", "nerf", "distilled",
)  # fmt: skip


def captured(name: str) -> Any:
    import hloscope as hs
    import jax
    from compile_ordinary import captured as ordinary
    from people import PROGRAMS

    if name.endswith(".tpu"):
        return ordinary(HERE / "ordinary" / f"{name.removesuffix('.tpu')}.py", "tpu")
    if name not in PROGRAMS:
        return ordinary(HERE / "ordinary" / f"{name}.py", "cpu", hardware="tpu-v5e")
    function, arguments = PROGRAMS[name][0]()
    return hs.capture(jax.jit(function), *arguments, hardware="tpu-v5e")


def check(name: str) -> None:
    """Prints a line for each change of a program: whether it is proved, and what is amiss."""
    import hloscope as hs

    begin = time.process_time()
    cap = captured(name)
    first = time.process_time() - begin
    begin = time.monotonic()
    options = hs.ProofOptions(progress=lambda _: time.monotonic() - begin < ENOUGH_SECONDS)
    for finding in cap.findings.prove(options):
        if finding.advice and not finding.changes:
            print("by hand", finding.rule, finding.advice, finding.at_stake, sep=" | ", flush=True)
        for proof in finding.proofs:
            words = "error" if proof.error else "proved" if proof.is_proved else "no gain"
            amiss = []
            if proof.is_proved:
                amiss = trouble(cap, proof, first)
            elif proof.error:
                amiss = [proof.error]
            print(words, finding.rule, proof, finding.at_stake, *amiss, sep=" | ", flush=True)


def trouble(cap: Any, proof: Any, first: float) -> list[str]:
    """What a proved change makes worse than its proof says; ``first`` is what capturing took."""
    from hloscope.plan.running.candidate_figures import figures

    begin = time.process_time()
    changed = cap.what_if(**proof.asked)
    spent = time.process_time() - begin
    before, after = figures(cap), figures(changed)
    pairs = {
        "step": (before.seconds, after.seconds),
        "peak": (before.peak_bytes, after.peak_bytes),
        "on the wire": (before.wire_bytes, after.wire_bytes),
        "FLOPs": (before.flops, after.flops),
        "bytes accessed": (before.bytes_accessed, after.bytes_accessed),
        "instructions": (before.instructions, after.instructions),
    }
    out = []
    said = {"step": proof.step, "peak": proof.peak, "on the wire": proof.wire}
    in_table = {f.name for f in proof.figures}
    for name, (had, has) in pairs.items():
        if name in said and not same(said[name], (had, has)):
            out.append(f"{name} {had} → {has}, and the proof has {said[name]}")
        if had is None or has is None or has <= had * (1 + WORSE):
            continue
        if name not in (str(proof) if name in said else in_table):
            out.append(f"{name} {had:.4g} → {has:.4g}, unsaid")
    if spent > 1 + SLOWER_TO_COMPILE * first:
        out.append(f"compiled in {first:.1f} → {spent:.1f} s of CPU, unsaid")
    values = changed.same_values()
    print(f"    {values}", flush=True)
    if values.difference is not None and values.difference > SAME and not values.may_alter:
        out.append(str(values))
    return out


def same(a: Any, b: Any) -> bool:
    return all(x == y or (x and y and abs(x / y - 1) < 1e-6) for x, y in zip(a, b, strict=True))


def main() -> None:
    if sys.argv[1] == "--one":
        check(sys.argv[2])
        return
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    programs = amiss = 0
    kinds: Counter[str] = Counter()
    for name in sys.argv[2:] or USUAL:
        kept = folder / f"{name}.txt"
        if not kept.exists():
            run(name, kept)
        lines = [x for x in kept.read_text().splitlines() if " | " in x]
        programs += any(x.startswith("proved") for x in lines)
        for line in lines:
            kind, rule, words, _, *wrong = line.split(" | ")
            kinds[kind] += 1
            amiss += bool(wrong) and kind == "proved"
            print(
                f"{name:20} {kind:8} {rule:20} {words}", *(f"\n    {w}" for w in wrong), flush=True
            )
    print(", ".join(f"{n} {kind}" for kind, n in kinds.items()))
    print(f"changes proved of {programs} programs; {amiss} worse than said")


def run(name: str, kept: Path) -> None:
    command = [sys.executable, __file__, "--one", name]
    try:
        ended = subprocess.run(command, timeout=LIMIT_SECONDS, capture_output=True, text=True)
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode()
        kept.write_text(f"{text}no end after {LIMIT_SECONDS} s\n")
        print(f"{name}: no end after {LIMIT_SECONDS} s", flush=True)
        return
    kept.write_text(ended.stdout)
    if ended.returncode:
        print(f"{name}: {ended.stderr[-300:]}", flush=True)
        kept.write_text(ended.stdout + ended.stderr[-2000:])


if __name__ == "__main__":
    main()
