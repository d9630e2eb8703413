"""Typed sizing functions: (frame, facts) -> a change with number, cost and loser."""
