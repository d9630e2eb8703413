#!/bin/bash
set -e
exec vllm serve --config /etc/llm/config.yaml --port 8080
