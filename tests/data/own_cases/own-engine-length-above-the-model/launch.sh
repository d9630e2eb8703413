infradoc serve --max-model-len 32768
