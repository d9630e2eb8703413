infradoc serve smollm2-135m --kv-pool-tokens 512
