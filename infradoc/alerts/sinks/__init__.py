"""Where notifications go: one service a file. `all.py` lists them; `base.py` says what a sink is."""
