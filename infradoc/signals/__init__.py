"""The signal store of one target: series, events, facts."""
