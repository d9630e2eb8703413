"""What each action of the closed list does to a live engine."""
