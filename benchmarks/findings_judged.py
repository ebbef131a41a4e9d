"""Every finding of many programs against the judgements kept in ``findings_judged.txt``.

    python benchmarks/findings_judged.py [FOLDER_OR_FILE ...] [--kept FILE] [--write]

Without files, both programs of each advice pair of the tests. A judgement is of one sentence, with
figures and names left out; its reason says of which programs the HLO or the source was read:

    exposed-collective: The chip waits # (#) for # all-gathers over *
      cause: # of # on the wire is not hidden behind compute ... Stored in shards ...
      said: gathered.tpu: The chip waits 449 µs (53 % of the modelled step) for ...
      true: the operands are parameters given P('data'), and a product reads each result
      of: gathered.tpu, gathered_scoped.tpu x2

Prints findings that are new, changed (known for other programs only), gone, false or not judged
yet. ``--write`` puts these into the file, new ones as "not judged", other programs with "?". Where
several folders are given, programs have their folder's name. Times are of TPU v5e.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / p) for p in ("python", "tests", "tests/python/helpers")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

UNJUDGED = "not judged"
JUDGEMENTS = ("true", "false", "unsure", UNJUDGED)
_NAMES = re.compile(r"`[^`]*`|%[\w.\-]+|[\w/.\-]+\.py:\d+|\w+\[[^\]]*\](\{[^}]*\})?|\{[\d,]+\}")
_FIGURES = re.compile(r"\d[\d.,]*\d|\d")
_UNITS = re.compile(r"# ?(?:[kKMGTP]?i?B|[kMGTP]?FLOPs?|ns|µs|ms|s|%)(?!\w)")
_LISTS = re.compile(r"\*(?:,? (?:and )?\*)+")


class Sentence(NamedTuple):
    """What a finding says, with figures (#) and names (*) left out."""

    rule: str
    title: str
    cause: str


class Judged(NamedTuple):
    judgement: str
    reason: str
    programs: Counter[str]
    said: str = ""  # by one of them, with figures
    unjudged: frozenset[str] = frozenset()  # others that say so, with "?" in the file


# What only weakens a sentence, or counts lines that are left out, makes it no other one.
_HEDGES = re.compile(
    r"(?<=waits )up to |(?<=compute) in what XLA:CPU made, which overlaps nothing"
    r"| and the rest at \d+ more lines"
)


def without_figures(text: str) -> str:
    text = _HEDGES.sub("", text)
    text = _UNITS.sub("#", _FIGURES.sub("#", _NAMES.sub("*", text)))
    return " ".join(_LISTS.sub("*", text).split())


def sentence(finding: Any) -> Sentence:
    title, evidence = without_figures(finding.title), without_figures(finding.evidence)
    advice = without_figures(finding.advice)
    # The cause is the evidence's last part: what it is for comes after the figures.
    parts = re.split(r"(?<=[a-z)*#])[.;:] ", evidence)
    cause = evidence if len(evidence) <= 150 else f"{evidence[:80]} … {parts[-1][:80]}"
    tried = f" → {advice[:60].rstrip()}" if advice else " → no advice"
    return Sentence(finding.rule, title[:110], cause + tried)


def load(file: Path) -> dict[Sentence, Judged]:
    kept: dict[Sentence, Judged] = {}
    if not file.exists():
        return kept
    for block in file.read_text().split("\n\n"):
        lines = [x.strip() for x in block.strip().splitlines() if not x.startswith("#")]
        if len(lines) < 4:
            continue
        said = lines.pop(2).removeprefix("said: ") if lines[2].startswith("said: ") else ""
        rule, title = lines[0].split(": ", 1)
        judgement, _, reason = lines[2].partition(":")
        assert judgement in JUDGEMENTS, lines[2]
        programs: Counter[str] = Counter()
        for one in lines[3].removeprefix("of: ").split(", "):
            name, _, times = one.partition(" x")
            if not times.endswith("?") and not name.endswith("?"):
                programs[name] = int(times or 1)
        kept[Sentence(rule, title, lines[1].removeprefix("cause: "))] = Judged(
            judgement, reason.strip(), programs, said
        )
    return kept


def save(file: Path, kept: dict[Sentence, Judged]) -> None:
    blocks = [
        f"{s.rule}: {s.title}\n  cause: {s.cause}\n  said: {j.said}\n"
        f"  {j.judgement}: {j.reason}\n  of: "
        + ", ".join(f"{n} x{k}" if k > 1 else n for n, k in sorted(j.programs.items()))
        + "".join(f", {n}?" for n in sorted(j.unjudged))
        for s, j in sorted(kept.items())
    ]
    head = "# Findings, judged by reading the HLO; made by findings_judged.py --write.\n\n"
    file.write_text(head + "\n\n".join(blocks) + "\n")


def programs(given: list[str]) -> Iterator[tuple[str, Any]]:
    """Name and capture of each: those of the given files, or of the advice pairs."""
    import hloscope as hs

    several = len(given) > 1  # two folders may have programs of one name
    for g in map(Path, given):
        for path in sorted(g.iterdir()) if g.is_dir() else [g]:
            name = path.name.removesuffix(".gz")
            if not name.endswith((".hlo", ".txt")):
                continue
            cap = hs.read(path)
            if cap.hardware is None:
                cap.hardware = "tpu-v5e"
            folder = f"{path.parent.name}/" if several else ""
            yield folder + name.rpartition(".")[0], cap
    if not given:
        from advice_pairs import PAIRS

        for pair in PAIRS:
            for followed in (False, True):
                cap = pair.make(followed)
                if cap.hardware is None:
                    cap.hardware = "tpu-v5e"
                which = "followed" if followed else "as it is"
                words = pair.followed.replace(",", "")
                yield f"{pair.rule} ({words}) {which}.{pair.platform}", cap


def compare(
    found: dict[Sentence, Counter[str]], kept: dict[Sentence, Judged], read: Iterable[str]
) -> dict[str, list[str]]:
    """What differs from the kept judgements, by what it is; of the programs that were read."""
    differs: dict[str, list[str]] = defaultdict(list)
    names = set(read)
    for s, of in sorted(found.items()):
        at = kept.get(s)
        judgement = at.judgement if at else "new"
        if judgement != "true":
            differs[judgement].append(f"{s.rule}: {s.title}\n    {s.cause}\n    of {', '.join(of)}")
        elif at and (more := of - at.programs):
            differs["changed"].append(f"{s.rule}: {s.title}\n    now also of {', '.join(more)}")
    for s, at in sorted(kept.items()):
        less = {n for n in at.programs - found.get(s, Counter()) if n in names}
        if less:
            differs["gone"].append(
                f"{s.rule}: {s.title}\n    no longer of {', '.join(sorted(less))}"
            )
    return differs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument(
        "--kept", type=Path, default=Path(__file__).with_name("findings_judged.txt")
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    kept, found, read = load(options.kept), defaultdict(Counter), []
    said: dict[Sentence, str] = {}
    for name, cap in programs(options.files):
        read.append(name)
        if cap.findings.failed:
            print(f"{name}: failed: {cap.findings.failed}")
        for finding in cap.findings:
            found[sentence(finding)][name] += 1
            words = f"{name}: {finding.title}: {finding.evidence} → {finding.advice or 'no advice'}"
            said.setdefault(sentence(finding), " ".join(words.split()))
    differs = compare(found, kept, read)
    for what, sentences in differs.items():
        print(f"\n{what}: {len(sentences)}")
        print("\n".join(f"  {x}" for x in sentences))
    many = sum(of.total() for of in found.values())
    print(f"\n{len(read)} programs, {many:,} findings in {len(found):,} sentences")
    if options.write:
        for s in kept.keys() | found.keys():
            old = kept.get(s, Judged(UNJUDGED, "", Counter()))
            of = Counter({n: k for n, k in old.programs.items() if n not in set(read)})
            now = found.get(s, Counter())
            is_new = old.judgement == UNJUDGED
            of += Counter({n: k for n, k in now.items() if is_new or n in old.programs})
            more = frozenset(n for n in now if n not in of)
            kept[s] = Judged(old.judgement, old.reason, of, said.get(s, old.said), more)
        save(options.kept, {s: j for s, j in kept.items() if j.programs})


if __name__ == "__main__":
    main()
