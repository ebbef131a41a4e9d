/** The treemap's layout: areas in proportion, inside the parent, without overlap. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { tilesOf } from "../../js/panels/cost/treemap.ts";
import { squarify } from "../../js/panels/cost/treemap-layout.ts";
import type { ScopeCost } from "../../js/state/cost/scope-costs.ts";

const values = fc
  .array(fc.double({ min: 1e-9, max: 1e3, noNaN: true }), { minLength: 1, maxLength: 40 })
  .map((list) => list.sort((a, b) => b - a));
const room = fc.record({
  x: fc.integer({ min: -50, max: 50 }),
  y: fc.integer({ min: -50, max: 50 }),
  width: fc.integer({ min: 1, max: 900 }),
  height: fc.integer({ min: 1, max: 900 }),
});

describe("squarify", () => {
  it("gives areas in proportion, inside the room, that do not overlap", () => {
    fc.assert(
      fc.property(values, room, (list, r) => {
        const rects = squarify(list, r);
        expect(rects).toHaveLength(list.length);
        const total = list.reduce((a, b) => a + b, 0);
        const area = r.width * r.height;
        const near = 1e-6 * Math.max(r.width, r.height);
        rects.forEach((a, k) => {
          expect(Math.abs(a.width * a.height - (area * list[k]) / total)).toBeLessThan(1e-6 * area);
          expect(a.x).toBeGreaterThanOrEqual(r.x - near);
          expect(a.y).toBeGreaterThanOrEqual(r.y - near);
          expect(a.x + a.width).toBeLessThanOrEqual(r.x + r.width + near);
          expect(a.y + a.height).toBeLessThanOrEqual(r.y + r.height + near);
          for (const b of rects.slice(k + 1)) {
            const across = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
            const down = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
            expect(Math.min(across, down)).toBeLessThanOrEqual(near);
          }
        });
      }),
    );
  });

  it("keeps equal values near squares", () => {
    for (const { width, height } of squarify(Array(16).fill(1), {
      x: 0,
      y: 0,
      width: 400,
      height: 400,
    })) {
      expect(Math.max(width / height, height / width)).toBeLessThan(1.01);
    }
  });
});

describe("nested tiles", () => {
  const scope = (value: number, children: ScopeCost[] = []): ScopeCost => ({
    selection: null,
    label: "s",
    value,
    part: -1,
    groups: [],
    children,
  });
  it("lie inside the tile of their scope", () => {
    const inner = [scope(3), scope(1)];
    const outer = scope(4, inner);
    const tiles = tilesOf(scope(5, [outer, scope(1)]), { x: 0, y: 0, width: 500, height: 300 });
    expect(tiles.map((t) => t.level)).toEqual([0, 1, 1, 0]);
    const [around, ...others] = tiles;
    for (const t of others.filter((o) => o.level === 1)) {
      expect(t.x).toBeGreaterThan(around.x);
      expect(t.x + t.width).toBeLessThan(around.x + around.width);
      expect(t.y + t.height).toBeLessThan(around.y + around.height);
    }
    // Where there is no room for names, a scope stays one tile.
    expect(
      tilesOf(scope(5, [outer, scope(1)]), { x: 0, y: 0, width: 30, height: 20 }),
    ).toHaveLength(2);
  });
});
