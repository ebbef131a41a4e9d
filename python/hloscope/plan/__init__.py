"""Choosing: what it would take, which stages, which sharding. Results are frozen, with a view.

========================  =======================================================================
``search*.py``            ``hs.search_shardings``; ``space.py`` what is chosen from, ``strategy.py``
                          what is looked at, ``figures.py`` what ranks, ``constraints.py``
``running.py``            candidates on any executor; ``children.py``, ``child.py`` their processes,
                          ``store.py`` results on disk
``stages.py``             ``hs.plan_stages``
``transformer*.py``       ``hs.transformer``: analytic model; ``volumes.py``, ``rates.py`` with it
``alpa_log.py``           reads a log of Alpa's stage construction; ``stage_log.py`` its result
``stage_*.py``            pipeline stages: choices, exact solver, plan, text and view
``schedules.py``          GPipe, 1F1B, interleaved, zero-bubble
``page.py``, ``widget.py``  results as an offline page and as a widget; drawn by ``js/plan/``
========================  =======================================================================
"""
