/** A group, a fold or a computation: what it contains, how much of each, and its largest values. */

import { type Child, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import {
  childGroups,
  foldMembers,
  instructionsOf,
  materialized,
  nameOf,
} from "../../state/members.ts";
import type { GroupKind, Selection } from "../../view.ts";
import type { PanelContext } from "../panel.ts";
import { facts, instructionRow, longList, note, section, selectionLink } from "../parts/parts.ts";
import { groupCost } from "./cost.ts";
import { biggestOutputs, bytesOf, families } from "./members.ts";

const KIND_WORDS: Record<GroupKind, string> = {
  module: "module",
  entry: "ENTRY computation",
  scope: "scope, function or source line",
  fusion: "inside of a fusion",
  body: "loop body",
  condition: "loop condition",
  branch: "branch of a conditional",
  call: "called computation",
  reducer: "reducer or comparator",
  component: "class of equal parts",
  section: "consecutive part of a large group",
  unreachable: "computation that nothing calls",
};

export function groupDetails(ctx: PanelContext, selection: Selection): Child[] {
  const { model } = ctx;
  const members = instructionsOf(model, selection);
  const { size } = model.group;
  const rows: [string, Child | Child[]][] = [["Kind", kindWords(model, selection)]];
  // Values inside fusions never exist in memory; but inside a fusion there are no others.
  const real = materialized(model);
  const outside = members.filter((i) => real[i]);
  const listed = outside.length ? outside : members;
  rows.push([
    "Instructions",
    listed.length < members.length
      ? `${format.count(members.length)}, ${format.count(listed.length)} outside fusions`
      : format.count(members.length),
  ]);
  rows.push(...groupCost(model, members));
  if (selection.kind === "group") {
    const owner = model.group.owner[selection.index];
    const computation = model.group.computation[selection.index];
    if (owner >= 0)
      rows.push(["Opened from", selectionLink(ctx, { kind: "instruction", index: owner })]);
    if (computation >= 0)
      rows.push(["Computation", model.strings.get(model.computation.name[computation])]);
  }
  if (selection.kind === "computation") {
    const root = model.computation.root[selection.index];
    if (root >= 0) rows.push(["Root", selectionLink(ctx, { kind: "instruction", index: root })]);
  }
  const inside =
    selection.kind === "fold"
      ? foldMembers(model, selection.index)
      : selection.kind === "group"
        ? [...childGroups(model)[selection.index]].sort((a, b) => size[b] - size[a])
        : [];
  const biggest = biggestOutputs(model, listed, 8);
  return [
    h("h2", { class: "title" }, nameOf(model, selection) || "(unnamed)"),
    facts(rows),
    section("By opcode family", families(ctx, members)),
    inside.length > 0 &&
      section(
        `${selection.kind === "fold" ? "Repeats" : "Groups inside"} (${format.count(inside.length)})`,
        longList(inside, (g) =>
          h(
            "li",
            null,
            selectionLink(ctx, { kind: "group", index: g }),
            h("span", { class: "dim" }, format.plural(model.group.size[g], "instruction")),
          ),
        ),
      ),
    biggest.length > 0 &&
      section(
        "Biggest outputs",
        longList(biggest, (i) => instructionRow(ctx, i, bytesOf(model, i))),
      ),
    section(
      `Instructions (${format.count(listed.length)})`,
      longList(listed, (i) => instructionRow(ctx, i)),
    ),
  ];
}

/** Boxes that were selected together: each with its part, and their sums. */
export function severalDetails(ctx: PanelContext, several: readonly Selection[]): Child[] {
  const { model } = ctx;
  const each = several.map((selection) => instructionsOf(model, selection));
  // A box may be inside another one: everything counts once.
  const members = [...new Set(each.flat())].sort((a, b) => a - b);
  const rows: [string, Child | Child[]][] = [
    ["Instructions", format.count(members.length)],
    ...groupCost(model, members),
  ];
  return [
    h("h2", { class: "title" }, format.plural(several.length, "box", "boxes")),
    note("Selected together with Ctrl or Cmd; what is in two of them counts once."),
    facts(rows),
    section("By opcode family", families(ctx, members)),
    section(
      "Boxes",
      ...several.map((selection, k) =>
        h(
          "div",
          { class: "section" },
          selectionLink(ctx, selection),
          facts([
            ["Instructions", format.count(each[k].length)] as [string, Child],
            ...groupCost(model, each[k]),
          ]),
        ),
      ),
    ),
  ];
}

function kindWords(model: ViewModel, { kind, index }: Selection): string {
  if (kind === "group") return KIND_WORDS[model.groupKind(index)];
  if (kind === "fold") {
    return `${format.plural(foldMembers(model, index).length, "equal or nearly equal group")} in a row`;
  }
  const group = model.computation.group[index];
  return group >= 0 ? KIND_WORDS[model.groupKind(group)] : "computation";
}
