"""Child processes for work that may crash, hang or take all memory.

===================  ========================================================================
``environment.py``   the variables of the environment that are passed on to a reader
``frames.py``        messages on a pipe: kind, length, payload
``child.py``         a running child: its messages, its limits, and how it ended
``worker.py``        a child that answers one job after another; every thread has its own
``inside.py``        the child's side: limits on itself, a clean standard output
===================  ========================================================================
"""
