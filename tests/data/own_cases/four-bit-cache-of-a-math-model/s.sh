lmdeploy serve api_server /m/qwen2.5-math-7b --quant-policy 4 --cache-max-entry-count 0.8 --server-port 23333
