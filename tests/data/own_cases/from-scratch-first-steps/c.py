gradient_accumulation_steps = 40
batch_size = 12
dtype = 'bfloat16'
