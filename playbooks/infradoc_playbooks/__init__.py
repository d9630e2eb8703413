"""A runbook per finding id, in English and Chinese."""
