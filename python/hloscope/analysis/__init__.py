"""Module → frozen results. None imports jax; each folder builds on those above it.

=============  ==============================================================================
``base/``      an instruction on its own: columns (``table.py``), families, drawing flags,
               labels, ``op_name``, trip counts of loops, phases, meshes
``grouping/``  the tree of groups: scopes, functions, parts, folds
``comms/``     what each device holds and sends: shardings, collectives, wire bytes
``cost/``      FLOPs, bytes accessed, executions; the roofline's modelled seconds
``memory/``    live ranges over the schedule, the peak, donation, what loops store
``why/``       on comms: origins and causes of collectives, what the compiler said
``findings/``  what is worth acting on, ranked, with evidence and line
``report/``    what users ask for: summary, source lines, measured time, diff, check
``text/``      numbers and tables as text: a leaf
=============  ==============================================================================
"""
