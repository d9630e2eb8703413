"""findings -> actions -> verify: plan, apply, judge, undo."""
