import requests
# score whole prompts
for chunk in batches(prompts, 256):
    requests.post("http://127.0.0.1:30000/generate", json={"text": chunk, "sampling_params": {"max_new_tokens": 1}, "return_logprob": True, "logprob_start_len": 0})
