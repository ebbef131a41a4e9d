"""Pages that are not the explorer: differences, planning, watched compiles."""
