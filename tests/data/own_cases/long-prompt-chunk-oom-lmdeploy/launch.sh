lmdeploy serve api_server acme/code-34b --tp 2 --cache-max-entry-count 0.6 --session-len 131072 --max-prefill-token-num 65536 --backend pytorch
