"""One tick through the flow: sample -> signals -> rules -> findings."""
