infradoc serve --device-memory-bytes 1200000000 --kv-pool-tokens 100000
