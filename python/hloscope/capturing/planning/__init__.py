"""Programs that planning compiles: cut into layers, sharded, or made from formulas."""
