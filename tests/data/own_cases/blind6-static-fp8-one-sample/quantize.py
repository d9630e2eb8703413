from auto_fp8 import AutoFP8ForCausalLM, BaseQuantizeConfig
examples = tokenizer(["auto_fp8 is an easy-to-use model quantization library"], return_tensors="pt").to("cuda")
quantize_config = BaseQuantizeConfig(quant_method="fp8", activation_scheme="static", ignore_patterns=["re:.*lm_head"])
