"""Actions that the bundled engine cannot take while it serves: named in a plan, never carried out."""

from __future__ import annotations

from infradoc.remediation.actions.base import ManualAction, by_name

RESTART = "who_restart"
CLIENTS = "who_clients"
OPERATOR = "who_operator"

MANUAL = by_name(
    ManualAction("raise_gpu_memory_utilization", "gpu_memory_utilization", "other processes on the device", RESTART),
    ManualAction("raise_api_server_count", "api_server_count", "memory and cores for each front end", RESTART),
    ManualAction("disable_context_shift", "context_shift", "requests over the limit: they fail", RESTART),
    ManualAction("raise_max_input_tokens", "max_input_tokens", "fewer requests fit into the KV pool", RESTART),
    ManualAction("lower_client_max_tokens", "client_max_tokens", "callers who need long answers", CLIENTS),
    ManualAction("shorten_client_prompts", "client_prompt_tokens", "callers: less context in each prompt", CLIENTS),
    ManualAction("lower_request_rate", "request_rate", "callers: fewer requests a second", CLIENTS),
    ManualAction("set_expandable_segments", "pytorch_alloc_conf", "set-ups that share tensors by CUDA IPC", RESTART),
    ManualAction("stop_other_process", "other_process", "whoever uses that program", OPERATOR),
    ManualAction("raise_host_ram", "host_ram", "the budget: more memory", OPERATOR),
    ManualAction("add_replicas", "replicas", "the budget: another device", OPERATOR),
    ManualAction("fix_gpu_cooling", "gpu_cooling", "callers, while the host is out of service", OPERATOR),
    ManualAction("raise_gpu_power_limit", "gpu_power_limit", "the rack's power budget and cooling", OPERATOR),
    ManualAction("release_gpu_clocks", "gpu_clock_lock", "the rack's power budget and cooling", OPERATOR),
    ManualAction("service_gpu", "gpu_device", "callers without another replica", OPERATOR),
    ManualAction("restart_engine", "engine_restart", "every request in flight is lost", OPERATOR),
    ManualAction(
        "extend_shared_prefix", "client_shared_prefix_tokens", "clients: their prompt templates change", CLIENTS
    ),
    ManualAction("raise_cuda_graph_max_bs", "cuda_graph_max_bs", "the KV pool: graphs take device memory", RESTART),
    ManualAction("raise_cpu_limit", "cpu_limit", "whatever else runs on the node", OPERATOR),
    ManualAction("set_omp_num_threads", "omp_num_threads", "nobody, while the quota stays", RESTART),
    ManualAction("move_cpu_neighbours", "other_process", "what is moved: it needs cores elsewhere", OPERATOR),
    ManualAction("raise_stream_interval", "stream_interval", "readers: text comes in larger pieces", RESTART),
    ManualAction(
        "raise_client_concurrency", "client_concurrency", "single requests: somewhat slower in larger batches", CLIENTS
    ),
    ManualAction("drop_prompt_logprobs", "prompt_logprobs", "callers who need these values", CLIENTS),
    ManualAction("disable_fast_image_processor", "fast_image_processor", "images: they are prepared slower", RESTART),
    ManualAction("lower_client_concurrency", "client_concurrency", "callers: fewer requests in flight", CLIENTS),
    ManualAction("lower_num_scheduler_steps", "num_scheduler_steps", "throughput: more scheduling work", RESTART),
    ManualAction("reserve_full_prompts", "scheduler_reserve_full_isl", "long prompts: they wait for room", RESTART),
    ManualAction(
        "raise_schedule_conservativeness", "schedule_conservativeness", "concurrency: fewer run at once", RESTART
    ),
    ManualAction("disable_mm_preprocessor_cache", "mm_preprocessor_cache", "repeated images: processed again", RESTART),
    ManualAction("enable_continuous_batching", "continuous_batching", "single requests: somewhat slower", RESTART),
    ManualAction("raise_max_partial_prefills", "max_num_partial_prefills", "long prompts: they take longer", RESTART),
    ManualAction("set_long_prefill_threshold", "long_prefill_token_threshold", "long prompts: more steps", RESTART),
    ManualAction("raise_watermark", "watermark", "concurrency: part of the pool stays empty", RESTART),
    ManualAction("raise_client_max_tokens", "client_max_tokens", "other callers: fewer requests a second", CLIENTS),
    ManualAction("raise_tensor_parallel_size", "tensor_parallel_size", "the budget: more devices", RESTART),
    ManualAction("use_smaller_checkpoint", "model_checkpoint", "callers: answers may get worse", RESTART),
    ManualAction("quantize_kv_cache", "kv_cache_dtype", "callers: long contexts may lose accuracy", RESTART),
    ManualAction("disable_cuda_graphs", "enforce_eager", "callers: decode gets slower", RESTART),
    ManualAction("lower_cuda_graph_max_bs", "cuda_graph_max_bs", "large batches: they run without graphs", RESTART),
    ManualAction("disable_prefill_graphs", "cuda_graph_prefill", "short prompts: prefill gets slower", RESTART),
    ManualAction("lower_mm_limit", "limit_mm_per_prompt", "callers with many images or videos", RESTART),
    ManualAction("lower_mm_max_pixels", "mm_max_pixels", "callers with large images: detail is lost", RESTART),
    ManualAction("upgrade_engine", "engine_version", "whoever relies on the present version", OPERATOR),
    ManualAction("change_attention_backend", "attention_backend", "callers: speed may differ", RESTART),
    ManualAction("lower_kernel_stages", "kernel_num_stages", "the kernel: it gets slower", OPERATOR),
    ManualAction("set_rope_scaling", "rope_scaling", "short prompts: answers may get worse", RESTART),
    ManualAction("lower_n_gpu_layers", "n_gpu_layers", "callers: every token gets slower", RESTART),
    ManualAction("start_in_sequence", "start_order", "whoever waits for the servers: the start takes longer", OPERATOR),
    ManualAction("lower_swap_space", "swap_space", "preempted requests: they are computed again", RESTART),
    ManualAction("lower_kv_host_cache", "kv_host_cache", "returning prefixes: more are computed again", RESTART),
    ManualAction("lower_weights_offload", "weights_cpu_offload", "the KV pool: weights take its place", RESTART),
    ManualAction("raise_shm_size", "shm_size", "the host's memory: /dev/shm counts against it", OPERATOR),
    ManualAction("share_host_ipc", "ipc_host", "isolation between containers", OPERATOR),
    ManualAction("set_dtype", "dtype", "memory or speed, as the new format costs", RESTART),
    ManualAction("set_quantization", "quantization", "memory or speed, as the other method costs", RESTART),
    ManualAction("use_supported_checkpoint", "model_checkpoint", "memory, where the weights get larger", RESTART),
    ManualAction("use_newer_gpu", "gpu_model", "the budget: another device", OPERATOR),
    ManualAction("restore_kv_cache_dtype", "kv_cache_dtype", "concurrency: the pool holds half the tokens", RESTART),
    ManualAction("calculate_kv_scales", "calculate_kv_scales", "the first requests: scales are measured then", RESTART),
    ManualAction("recalibrate", "calibration_data", "whoever quantizes: hours on a device", OPERATOR),
    ManualAction("show_devices", "container_devices", "isolation between containers", OPERATOR),
    ManualAction("enable_peer_copies", "nccl_p2p", "hosts whose PCIe path is broken: they hang again", RESTART),
    ManualAction("disable_peer_copies", "nccl_p2p", "bandwidth between the GPUs", RESTART),
    ManualAction("disable_acs", "acs_iommu", "isolation between virtual machines of the host", OPERATOR),
    ManualAction("enable_nccl_ib", "nccl_ib", "others on that fabric", RESTART),
    ManualAction("set_network_interface", "nccl_socket_ifname", "others on that interface", RESTART),
    ManualAction("enable_host_rdma", "host_rdma", "whoever uses the host while modules are loaded", OPERATOR),
    ManualAction("tokenize_first", "pretokenize", "disk space for the prepared data", OPERATOR),
    ManualAction("raise_ddp_timeout", "ddp_timeout", "a real hang: it is noticed later", OPERATOR),
    ManualAction("skip_gradient_sync", "no_sync", "device memory: gradients stay whole for longer", OPERATOR),
    ManualAction("lower_accumulation", "gradient_accumulation_steps", "the batch of a step, or memory", OPERATOR),
    ManualAction("train_in_bfloat", "bf16", "some precision of the mantissa", OPERATOR),
    ManualAction("upgrade_trainer", "engine_version", "whoever relies on the present version", OPERATOR),
)
