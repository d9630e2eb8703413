lmdeploy serve api_server internlm/internlm2_5-7b-chat --session-len 8192 --server-port 23333
