infradoc serve --max-model-len 1024
