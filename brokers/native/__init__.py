"""The broker's hot modules compiled ahead of time by mypyc: the same sources, about half the CPU per request.

Optional: without a compiled copy, or with one of other sources, the broker runs the Python modules
(docs/decisions/0012, 0086). The agent has it built; `finder` finds it; `notes` reports on it; `modules` defines its
content.
"""
