model = AutoModelForCausalLM.from_pretrained("/models/glm-4-9b-chat", torch_dtype=torch.float16, device_map="auto")
out = model.generate(**inputs, max_new_tokens=512, do_sample=True, temperature=0.8)
