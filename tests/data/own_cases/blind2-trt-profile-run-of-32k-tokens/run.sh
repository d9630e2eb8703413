trtllm-serve serve /data/model --backend pytorch --tp_size 8 --max_seq_len 32768 --max_num_tokens 32768 --max_batch_size 128 --extra_llm_api_options /data/config/extra.yml
