"""Our chat service."""
import os
from vllm import AsyncEngineArgs, AsyncLLMEngine

os.environ["VLLM_LOGGING_LEVEL"] = "INFO"
MODEL = "acme/chat-8b"
BATCH = 8
WINDOW = 8 * 1024

engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(
    model=MODEL,
    max_model_len=WINDOW,
    max_num_seqs=BATCH,  # more did not fit on the old card
    gpu_memory_utilization=0.9,
))
