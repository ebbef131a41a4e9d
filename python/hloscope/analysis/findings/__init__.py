"""What an expert would say after an hour with the program: ranked sentences with evidence.

    facts.py     what rules need of a program: cost, memory, collectives, lines
    rules.py     the ordered list of rules; one file per subject
    finding.py   Finding and Findings, the frozen results

A rule is silent when it is unsure, and when less is at stake than ``limits.WORTH_SAYING``.
"""
