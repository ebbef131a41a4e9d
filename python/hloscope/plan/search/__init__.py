"""``hs.search_shardings``: every way to shard a function's arguments, ranked."""
