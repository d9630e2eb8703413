from vllm import AsyncEngineArgs, AsyncLLMEngine

args = AsyncEngineArgs(model="acme/chat-8b", max_num_seqs=8, max_model_len=8192)
engine = AsyncLLMEngine.from_engine_args(args)
