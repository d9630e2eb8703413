backend_config = PytorchEngineConfig(tp=1, block_size=32)
pipe = pipeline('deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct', backend_config=backend_config)
