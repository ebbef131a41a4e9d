"""Module → frozen results. None imports jax; each folder builds on those above it.

===============  ============================================================================
``text/``        numbers and tables as text: a leaf
``base/``        an instruction on its own: columns, families, labels, lines, loops, phases
``grouping/``    the tree of groups: scopes, functions, layers, folds
``comms/``       what each device holds and sends: shardings, collectives, wire bytes
``cost/``        FLOPs, bytes accessed, executions; the roofline's modelled seconds
``memory/``      live ranges over the schedule, the peak, donation, what loops store
``why/``         on comms: origins and causes of collectives, what the compiler said
``findings/``    what is worth acting on, ranked, with evidence and line
``passes/``      what each compiler pass did; ``identity/`` which instruction became which
``provenance/``  what became of each operation and source line, and where instructions come from
``measured/``    measured time, from profiler traces
``report/``      summary, source lines, a user's own values, the programs of a run
``diff/``        what differs between two programs
``check/``       budgets
===============  ============================================================================

"""
