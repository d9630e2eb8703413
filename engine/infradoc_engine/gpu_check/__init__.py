"""Checks and measurements on a GPU host that has torch, triton and numpy, and nothing else of what the engine needs.

`python -m infradoc_engine.gpu_check --list` names the steps. Each step is a module here with `run(look)`, which yields
rows; the file is written after every row, so that a run that is cut keeps what it has.
"""
