from vllm import LLM, SamplingParams

llm = LLM(
    model="acme/vision-8b",
    dtype="bfloat16",
    enforce_eager=True,
    max_model_len=4096,
)
