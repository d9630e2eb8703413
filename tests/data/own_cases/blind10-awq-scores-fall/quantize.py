quant_config = {"zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}
model = AutoAWQForCausalLM.from_pretrained("/models/sql-coder-13b")
model.quantize(tokenizer, quant_config=quant_config, calib_data="pileval")
model.save_quantized("/models/sql-coder-13b-awq")
