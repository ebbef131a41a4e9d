/** How an edge is shown in the picture of its container. */
export const enum EdgeKind {
  /** Drawn along the flow. */
  Plain = 0,
  /** Replaced by a pair of labelled chips. */
  Stub = 1,
  /** Runs against the flow, part of a loop between groups: a pair of chips of another colour. */
  Back = 2,
  /** Implied by others: counted on its target, drawn when selected. */
  Implied = 3,
}
