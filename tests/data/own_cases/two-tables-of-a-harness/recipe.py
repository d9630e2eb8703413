oneshot(model=MODEL, dataset=ds, recipe=GPTQModifier(targets='Linear', scheme='W4A16'), num_calibration_samples=16, max_seq_length=256)
