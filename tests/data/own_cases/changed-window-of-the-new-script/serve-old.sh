#!/bin/bash
python -m vllm.entrypoints.openai.api_server --model acme/coder-14b --max-model-len 8192 --gpu-memory-utilization 0.9
