"""Module → frozen results. Each analysis is one file; none imports jax.

=================  ==========================================================
``table.py``       the module as numpy columns
``families.py``    what kind of work an instruction is; matmuls in disguise
``flags.py``       how an instruction wants to be drawn
``labels.py``      a short label for each instruction's box
``op_name.py``     parses op_name
``scopes.py``      the scope of every instruction, with or without op_name
``groups.py``      the tree of groups; group_nodes.py while it is built
``components.py``  cuts a very wide group into equal pieces or parts
``structure.py``   hashes: equal for equal structure
``folds.py``       equal neighbours of that tree → ``layer_[1..22]``
``trips.py``      trip counts of loops; how often each computation runs
``phases.py``     forward, backward, rematerialised, optimiser
``meshes.py``     the mesh: given, or inferred from groups and shardings
``sharding*.py``  who holds what; bytes per device
``collective*``   one row a logical collective; ``wire.py`` its bytes on the wire
``provenance*``   why an inserted collective is there; ``shardy_dump.py`` its origins
``shardy_paths.py``  along which ops Shardy propagated a mesh axis
``transitions.py``  edges along which a value changes its sharding
``compiler_messages.py``  what XLA warned of, pinned to instruction and line
``flops*.py``      FLOPs of each instruction as XLA counts them, custom calls too
``cost*.py``       bytes, executions, totals, XLA's own beside ours
``roofline*.py``   modelled seconds; collective times; exposed and hidden communication
``liveness*.py``   live ranges over the schedule, simulated
``memory*.py``     who is live at the peak; donation, copies, what loops store, tiling
``categories.py``  what a buffer is for
``remat.py``       what recomputing a value would cost
``source.py``      costs per source line
``measured.py``    measured time per instruction and device, from a trace
``summary.py``     counts and bytes; what ``hloscope summary --json`` prints
=================  ==========================================================
"""
