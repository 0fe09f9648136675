"""Ahead-of-time compilation of the broker's hot modules by mypyc, which halves the CPU time per request.

It is optional: without a compiled copy of exactly these sources the broker runs the Python modules
(docs/decisions/0012, 0086). `modules` lists the modules, `build` compiles them, `finder` imports them, and `notes`
stores the state of the build.
"""
