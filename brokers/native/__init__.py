"""The broker's hot modules compiled ahead of time by mypyc: the same sources, about half the CPU a request.

Optional: without a compiled copy, or with one of other sources, the broker runs the plain modules
(docs/decisions/0012, 0086). The agent has it made; `finder` finds it; `notes` tells of it; `modules` says
what it is made of.
"""
