"""Rule model, evaluation, catalog, signal maps. Pure: no network, no clock, no torch."""
