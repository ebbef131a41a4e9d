"""The lines of one computation before and after a pass, in one list."""

from __future__ import annotations

from bisect import bisect_left

from .steps import Steps


def difference(
    steps: Steps,
    was: dict[str, int],
    new: list[tuple[str, int]],
    gone: set[int],
    changed_from: dict[int, int],
) -> list[tuple[str, int]]:
    """Old and new lines of a computation in one list; what keeps its order keeps its place."""
    versions, nodes = steps.versions, steps.nodes
    old_place = {n: k for k, n in enumerate(was.values())}
    kept = [old_place[versions[v].node] for _, v in new if versions[v].node in old_place]
    still = set(_rising(kept))
    out: list[tuple[str, int]] = []
    olds = list(was.values())
    at = 0
    for kind, v in new:
        node = versions[v].node
        place = old_place.get(node, -1)
        if place in still:
            while at <= place:
                n = olds[at]
                if n in gone:
                    out.append(("-", nodes[n].versions[-1]))
                at += 1
            if kind == "+":
                out.append(("-", changed_from[node]))
            out.append((kind if kind != "~" else " ", v))
        elif place >= 0 and kind in " ~":
            out.append((">", v))
        else:
            if place >= 0:
                out.append(("-", changed_from[node]))
            out.append((kind, v))
    for n in olds[at:]:
        if n in gone:
            out.append(("-", nodes[n].versions[-1]))
    return out


def _rising(places: list[int]) -> list[int]:
    """The longest rising subsequence of places."""
    tails: list[int] = []
    at: list[int] = []
    back: list[int] = []
    for k, place in enumerate(places):
        j = bisect_left(tails, place)
        if j == len(tails):
            tails.append(place)
            at.append(k)
        else:
            tails[j] = place
            at[j] = k
        back.append(at[j - 1] if j else -1)
    out = []
    k = at[-1] if at else -1
    while k >= 0:
        out.append(places[k])
        k = back[k]
    return out[::-1]
