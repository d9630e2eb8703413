"""Sizes of devices and models: what memory a launch needs, computed before or after it failed. Pure."""
