"""Module → frozen results. Each analysis is one file; none imports jax.

================  ===========================================================
``table.py``      the module as numpy columns
``families.py``   what kind of work an instruction is; matmuls in disguise
``labels.py``     a short label for each instruction's box
``scopes.py``     op_name → scopes; the tree of groups
``folds.py``      equal neighbours of that tree → ``layer_[1..22]``
``summary.py``    counts and bytes; what ``hloscope summary --json`` prints
================  ===========================================================
"""
