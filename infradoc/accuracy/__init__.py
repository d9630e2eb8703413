"""Labelled incidents: how often the first finding is the right one, what is missed, and what is falsely said."""
