"""The closed list of actions: what a rule may advise, a playbook may name and remediation may carry out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infradoc_rules.model import Change, Risk


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One kind of change. `opposes` is the action that would push the same knob back."""

    name: str
    knob: str
    change: Change
    risk: Risk
    means: str
    opposes: str | None = None


def _table(*specs: ActionSpec) -> Mapping[str, ActionSpec]:
    return {spec.name: spec for spec in specs}


ACTIONS: Mapping[str, ActionSpec] = _table(
    ActionSpec(
        "raise_kv_capacity", "kv_pool_tokens", "increase", "reversible", "grow the KV pool", "lower_kv_capacity"
    ),
    ActionSpec(
        "lower_kv_capacity", "kv_pool_tokens", "decrease", "reversible", "shrink the KV pool", "raise_kv_capacity"
    ),
    ActionSpec(
        "raise_gpu_memory_utilization",
        "gpu_memory_utilization",
        "increase",
        "disruptive",
        "give the engine a larger share of device memory",
        "lower_gpu_memory_utilization",
    ),
    ActionSpec(
        "lower_gpu_memory_utilization",
        "gpu_memory_utilization",
        "decrease",
        "disruptive",
        "leave more of the device above the KV pool",
        "raise_gpu_memory_utilization",
    ),
    ActionSpec(
        "lower_block_size",
        "block_size",
        "decrease",
        "disruptive",
        "waste less of each request's last block",
    ),
    ActionSpec(
        "recompute_instead_of_swap", "preemption_mode", "set", "reversible", "drop blocks instead of moving them"
    ),
    ActionSpec("defragment_kv", "defragment", "enable", "reversible", "give leaked blocks back and compact the pool"),
    ActionSpec(
        "set_expandable_segments", "pytorch_alloc_conf", "set", "disruptive", "let the allocator grow its segments"
    ),
    ActionSpec("stop_other_process", "other_process", "disable", "disruptive", "move another program off the device"),
    ActionSpec("raise_host_ram", "host_ram", "increase", "disruptive", "give the host or the container more memory"),
    ActionSpec(
        "lower_max_num_seqs",
        "max_num_seqs",
        "decrease",
        "reversible",
        "admit fewer requests at once",
        "raise_max_num_seqs",
    ),
    ActionSpec(
        "raise_max_num_seqs",
        "max_num_seqs",
        "increase",
        "reversible",
        "admit more requests at once",
        "lower_max_num_seqs",
    ),
    ActionSpec(
        "set_tokenizer_workers", "tokenizer_workers", "increase", "reversible", "tokenize beside the event loop"
    ),
    ActionSpec("raise_api_server_count", "api_server_count", "increase", "disruptive", "run more front-end processes"),
    ActionSpec("reject_long_prompts", "truncation_policy", "set", "reversible", "refuse prompts that do not fit"),
    ActionSpec(
        "disable_context_shift", "context_shift", "disable", "disruptive", "fail instead of dropping old tokens"
    ),
    ActionSpec(
        "raise_max_model_len",
        "max_model_len",
        "increase",
        "disruptive",
        "accept longer requests",
        "lower_max_model_len",
    ),
    ActionSpec(
        "lower_max_model_len",
        "max_model_len",
        "decrease",
        "disruptive",
        "set aside less for each request",
        "raise_max_model_len",
    ),
    ActionSpec("raise_max_input_tokens", "max_input_tokens", "increase", "disruptive", "accept longer prompts"),
    ActionSpec(
        "raise_max_num_batched_tokens",
        "max_num_batched_tokens",
        "increase",
        "disruptive",
        "let one step take a longer prompt",
        "lower_max_num_batched_tokens",
    ),
    ActionSpec(
        "lower_max_num_batched_tokens",
        "max_num_batched_tokens",
        "decrease",
        "reversible",
        "let one step take less of a prompt",
        "raise_max_num_batched_tokens",
    ),
    ActionSpec(
        "lower_client_max_tokens",
        "client_max_tokens",
        "decrease",
        "read_only",
        "clients ask for fewer output tokens",
        "raise_client_max_tokens",
    ),
    ActionSpec(
        "raise_client_max_tokens",
        "client_max_tokens",
        "increase",
        "read_only",
        "clients allow longer answers",
        "lower_client_max_tokens",
    ),
    ActionSpec(
        "shorten_client_prompts", "client_prompt_tokens", "decrease", "read_only", "clients send shorter prompts"
    ),
    ActionSpec("lower_request_rate", "request_rate", "decrease", "read_only", "clients send fewer requests a second"),
    ActionSpec("add_replicas", "replicas", "increase", "disruptive", "serve from more copies"),
    ActionSpec(
        "limit_queue", "max_queued_requests", "set", "reversible", "refuse early instead of queueing without bound"
    ),
    ActionSpec(
        "enable_chunked_prefill", "chunked_prefill", "enable", "reversible", "split long prompts over several steps"
    ),
    ActionSpec(
        "enable_prefix_caching", "prefix_caching", "enable", "reversible", "reuse the KV blocks of shared prefixes"
    ),
    ActionSpec(
        "keep_prefix_states",
        "prefix_cache_policy",
        "set",
        "disruptive",
        "keep states of a prompt that a slot can go back to",
    ),
    ActionSpec(
        "extend_shared_prefix",
        "client_shared_prefix_tokens",
        "increase",
        "read_only",
        "clients put what their prompts share in front",
    ),
    ActionSpec(
        "use_cuda_graphs",
        "enforce_eager",
        "disable",
        "disruptive",
        "replay decode steps as CUDA graphs",
        "disable_cuda_graphs",
    ),
    ActionSpec(
        "raise_cuda_graph_max_bs",
        "cuda_graph_max_bs",
        "increase",
        "disruptive",
        "capture graphs of larger batches",
        "lower_cuda_graph_max_bs",
    ),
    ActionSpec("raise_cpu_limit", "cpu_limit", "increase", "disruptive", "give the server more cores"),
    ActionSpec(
        "set_omp_num_threads", "omp_num_threads", "set", "disruptive", "as many compute threads as there are cores"
    ),
    ActionSpec(
        "move_cpu_neighbours", "other_process", "disable", "disruptive", "move other programs off the server's cores"
    ),
    ActionSpec(
        "raise_stream_interval", "stream_interval", "increase", "reversible", "send several tokens in one stream event"
    ),
    ActionSpec(
        "raise_client_concurrency",
        "client_concurrency",
        "increase",
        "read_only",
        "clients keep more requests in flight",
        "lower_client_concurrency",
    ),
    ActionSpec("fix_gpu_cooling", "gpu_cooling", "fix", "reversible", "repair fans, airflow or inlet temperature"),
    ActionSpec("raise_gpu_power_limit", "gpu_power_limit", "increase", "reversible", "let the device draw more power"),
    ActionSpec("release_gpu_clocks", "gpu_clock_lock", "disable", "reversible", "let the driver choose the clocks"),
    ActionSpec("service_gpu", "gpu_device", "fix", "disruptive", "drain, then reset, repair or replace the device"),
    ActionSpec("restart_engine", "engine_restart", "enable", "disruptive", "restart the server"),
    # a start that failed for memory
    ActionSpec(
        "raise_tensor_parallel_size",
        "tensor_parallel_size",
        "increase",
        "disruptive",
        "split the model over more devices",
    ),
    ActionSpec("use_smaller_checkpoint", "model_checkpoint", "set", "disruptive", "serve quantized or smaller weights"),
    ActionSpec(
        "quantize_kv_cache",
        "kv_cache_dtype",
        "set",
        "disruptive",
        "store the KV cache in 8 bits",
        "restore_kv_cache_dtype",
    ),
    ActionSpec(
        "disable_cuda_graphs", "enforce_eager", "enable", "disruptive", "run without CUDA graphs", "use_cuda_graphs"
    ),
    ActionSpec(
        "lower_cuda_graph_max_bs",
        "cuda_graph_max_bs",
        "decrease",
        "disruptive",
        "capture graphs of fewer and smaller batches",
        "raise_cuda_graph_max_bs",
    ),
    ActionSpec(
        "disable_prefill_graphs", "cuda_graph_prefill", "disable", "disruptive", "capture no graphs of prefill chunks"
    ),
    ActionSpec(
        "lower_mm_limit", "limit_mm_per_prompt", "decrease", "disruptive", "allow fewer images or videos in a prompt"
    ),
    ActionSpec("lower_mm_max_pixels", "mm_max_pixels", "decrease", "disruptive", "scale large images down"),
    ActionSpec("upgrade_engine", "engine_version", "increase", "disruptive", "upgrade the engine"),
    ActionSpec(
        "change_attention_backend", "attention_backend", "set", "disruptive", "compute attention with other kernels"
    ),
    ActionSpec(
        "lower_kernel_stages", "kernel_num_stages", "decrease", "disruptive", "fewer pipeline stages or smaller tiles"
    ),
    ActionSpec("set_rope_scaling", "rope_scaling", "set", "disruptive", "extend the model's positions by scaling"),
    ActionSpec("lower_n_gpu_layers", "n_gpu_layers", "decrease", "disruptive", "keep some layers on the CPU"),
    ActionSpec("start_in_sequence", "start_order", "set", "disruptive", "start servers of one device in sequence"),
    # memory of the host
    ActionSpec("lower_swap_space", "swap_space", "decrease", "disruptive", "pin less host memory for swapped blocks"),
    ActionSpec("lower_kv_host_cache", "kv_host_cache", "decrease", "disruptive", "keep a smaller KV cache on the host"),
    ActionSpec(
        "lower_weights_offload", "weights_cpu_offload", "decrease", "disruptive", "keep fewer weights in host memory"
    ),
    ActionSpec("raise_shm_size", "shm_size", "increase", "disruptive", "give the container a larger /dev/shm"),
    ActionSpec("share_host_ipc", "ipc_host", "enable", "disruptive", "use the host's /dev/shm in the container"),
    # formats and quantization
    ActionSpec("set_dtype", "dtype", "set", "disruptive", "compute in another number format"),
    ActionSpec("set_quantization", "quantization", "set", "disruptive", "use another quantization method"),
    ActionSpec(
        "use_supported_checkpoint", "model_checkpoint", "set", "disruptive", "serve weights that this device can run"
    ),
    ActionSpec("use_finer_checkpoint", "model_checkpoint", "set", "disruptive", "serve weights of more bits"),
    ActionSpec("use_newer_gpu", "gpu_model", "set", "disruptive", "run on a device of a newer generation"),
    ActionSpec(
        "restore_kv_cache_dtype",
        "kv_cache_dtype",
        "set",
        "disruptive",
        "store the KV cache in the model's own format",
        "quantize_kv_cache",
    ),
    ActionSpec("calculate_kv_scales", "calculate_kv_scales", "enable", "disruptive", "give the KV cache its scales"),
    ActionSpec("recalibrate", "calibration_data", "set", "disruptive", "quantize again with data of your own kind"),
    # communication
    ActionSpec(
        "show_devices", "container_devices", "set", "disruptive", "let the container see all GPUs and network cards"
    ),
    ActionSpec(
        "enable_peer_copies", "nccl_p2p", "enable", "disruptive", "let GPUs copy directly", "disable_peer_copies"
    ),
    ActionSpec(
        "disable_peer_copies", "nccl_p2p", "disable", "disruptive", "copy through host memory", "enable_peer_copies"
    ),
    ActionSpec(
        "disable_acs", "acs_iommu", "disable", "disruptive", "turn ACS off and the IOMMU off or to pass-through"
    ),
    ActionSpec("enable_nccl_ib", "nccl_ib", "enable", "disruptive", "let NCCL use InfiniBand or RoCE"),
    ActionSpec("set_network_interface", "nccl_socket_ifname", "set", "disruptive", "name the fast network interface"),
    ActionSpec("enable_host_rdma", "host_rdma", "enable", "disruptive", "load the modules for GPUDirect RDMA"),
    # training
    ActionSpec("tokenize_first", "pretokenize", "enable", "read_only", "prepare the data before the ranks start"),
    ActionSpec("raise_ddp_timeout", "ddp_timeout", "increase", "disruptive", "wait longer for a late rank"),
    ActionSpec("skip_gradient_sync", "no_sync", "enable", "disruptive", "reduce gradients once for each whole step"),
    ActionSpec(
        "lower_accumulation",
        "gradient_accumulation_steps",
        "decrease",
        "disruptive",
        "fewer micro-steps for each step",
        "accumulate_smaller_batches",
    ),
    ActionSpec(
        "accumulate_smaller_batches",
        "gradient_accumulation_steps",
        "increase",
        "disruptive",
        "train on smaller micro-batches and accumulate more of them",
        "lower_accumulation",
    ),
    ActionSpec(
        "checkpoint_activations",
        "gradient_checkpointing",
        "enable",
        "disruptive",
        "keep few activations and compute the rest again",
    ),
    ActionSpec("shorten_sequences", "max_model_len", "decrease", "disruptive", "cut training sequences shorter"),
    ActionSpec("split_states", "zero_stage", "increase", "disruptive", "split states over the devices"),
    ActionSpec("use_small_optimizer", "optimizer", "set", "disruptive", "keep optimizer states in 8 bits"),
    ActionSpec("train_in_bfloat", "bf16", "enable", "disruptive", "train in bfloat16 instead of float16"),
    ActionSpec("upgrade_trainer", "engine_version", "increase", "disruptive", "upgrade the training framework"),
    ActionSpec(
        "drop_prompt_logprobs",
        "prompt_logprobs",
        "disable",
        "read_only",
        "clients ask for no log-probabilities of prompts",
    ),
    ActionSpec(
        "disable_fast_image_processor", "fast_image_processor", "disable", "disruptive", "prepare images on the host"
    ),
    ActionSpec(
        "lower_client_concurrency",
        "client_concurrency",
        "decrease",
        "read_only",
        "clients keep fewer requests in flight",
        "raise_client_concurrency",
    ),
    ActionSpec(
        "lower_num_scheduler_steps", "num_scheduler_steps", "decrease", "disruptive", "plan fewer decode steps at once"
    ),
    ActionSpec("raise_watermark", "watermark", "increase", "disruptive", "keep some blocks free at admission"),
    ActionSpec(
        "reserve_full_prompts",
        "scheduler_reserve_full_isl",
        "enable",
        "disruptive",
        "admit a prompt only if all of it fits",
    ),
    ActionSpec(
        "raise_schedule_conservativeness",
        "schedule_conservativeness",
        "increase",
        "disruptive",
        "set aside more for answers to come",
    ),
    ActionSpec(
        "disable_mm_preprocessor_cache", "mm_preprocessor_cache", "disable", "disruptive", "keep no processed images"
    ),
    ActionSpec(
        "enable_continuous_batching", "continuous_batching", "enable", "disruptive", "let requests join a running batch"
    ),
    ActionSpec(
        "raise_max_partial_prefills",
        "max_num_partial_prefills",
        "increase",
        "disruptive",
        "compute several prompts part by part",
    ),
    ActionSpec(
        "set_long_prefill_threshold",
        "long_prefill_token_threshold",
        "set",
        "disruptive",
        "keep part of each step for short prompts",
    ),
)


_IN_CHINESE: Mapping[str, str] = {
    "raise_kv_capacity": "扩大 KV 池",
    "lower_kv_capacity": "缩小 KV 池",
    "raise_gpu_memory_utilization": "让引擎占用更大的显存份额",
    "lower_gpu_memory_utilization": "在 KV 池之上多留显存",
    "lower_block_size": "减少每个请求末块的浪费",
    "recompute_instead_of_swap": "丢弃块而不是搬运块",
    "defragment_kv": "收回泄漏的块并整理池",
    "set_expandable_segments": "让分配器的段可以增长",
    "stop_other_process": "把其他程序移出该设备",
    "raise_host_ram": "给主机或容器更多内存",
    "lower_max_num_seqs": "减少同时接纳的请求",
    "raise_max_num_seqs": "同时接纳更多请求",
    "set_tokenizer_workers": "把分词移出事件循环",
    "raise_api_server_count": "增加前端进程",
    "reject_long_prompts": "拒绝放不下的提示",
    "disable_context_shift": "报错而不是丢弃旧 token",
    "raise_max_model_len": "接受更长的请求",
    "lower_max_model_len": "为每个请求少预留一些",
    "raise_max_input_tokens": "接受更长的提示",
    "raise_max_num_batched_tokens": "让一步容纳更长的提示",
    "lower_max_num_batched_tokens": "让一步少算一些提示",
    "lower_client_max_tokens": "客户端减少请求的输出 token",
    "raise_client_max_tokens": "客户端允许更长的回答",
    "shorten_client_prompts": "客户端发送更短的提示",
    "lower_request_rate": "客户端降低每秒请求数",
    "add_replicas": "增加服务副本",
    "limit_queue": "尽早拒绝，而不是无限排队",
    "enable_chunked_prefill": "把长提示分成多步",
    "enable_prefix_caching": "复用共享前缀的 KV 块",
    "keep_prefix_states": "保留槽位可以回退到的提示状态",
    "extend_shared_prefix": "客户端把共享内容放在提示最前",
    "use_cuda_graphs": "以 CUDA 图执行 decode 步",
    "raise_cuda_graph_max_bs": "为更大的批量捕获图",
    "raise_cpu_limit": "给服务更多核",
    "set_omp_num_threads": "计算线程数与核数一致",
    "move_cpu_neighbours": "把其他程序移出服务的核",
    "raise_stream_interval": "一个流式事件发送多个 token",
    "raise_client_concurrency": "客户端保持更多在途请求",
    "fix_gpu_cooling": "修复风扇、风道或进风温度",
    "raise_gpu_power_limit": "允许设备使用更多功率",
    "release_gpu_clocks": "让驱动自行选择频率",
    "service_gpu": "先排空，再复位、维修或更换设备",
    "restart_engine": "重启服务",
    "raise_tensor_parallel_size": "把模型拆分到更多设备上",
    "use_smaller_checkpoint": "改用量化或更小的权重",
    "quantize_kv_cache": "以 8 位存放 KV 缓存",
    "disable_cuda_graphs": "不使用 CUDA 图运行",
    "lower_cuda_graph_max_bs": "捕获更少、更小批量的图",
    "disable_prefill_graphs": "不为 prefill 分块捕获图",
    "lower_mm_limit": "减少一个提示中允许的图片或视频",
    "lower_mm_max_pixels": "把大图缩小",
    "upgrade_engine": "升级引擎",
    "change_attention_backend": "换用其他注意力内核",
    "lower_kernel_stages": "减少流水级数或缩小分块",
    "set_rope_scaling": "用位置缩放扩展模型的位置范围",
    "lower_n_gpu_layers": "让一部分层留在 CPU 上",
    "start_in_sequence": "同一设备上的服务依次启动",
    "set_dtype": "改用其他数值格式计算",
    "set_quantization": "改用其他量化方法",
    "use_supported_checkpoint": "改用此设备能运行的权重",
    "use_finer_checkpoint": "使用位数更高的权重",
    "use_newer_gpu": "换用更新一代的设备",
    "restore_kv_cache_dtype": "以模型自身的格式存放 KV 缓存",
    "calculate_kv_scales": "为 KV 缓存提供缩放因子",
    "recalibrate": "用与业务一致的数据重新量化",
    "show_devices": "让容器看到全部 GPU 和网卡",
    "enable_peer_copies": "允许 GPU 之间直接拷贝",
    "disable_peer_copies": "经主机内存拷贝",
    "disable_acs": "关闭 ACS，并关闭 IOMMU 或设为直通",
    "enable_nccl_ib": "允许 NCCL 使用 InfiniBand 或 RoCE",
    "set_network_interface": "指定高速网络接口",
    "enable_host_rdma": "加载 GPUDirect RDMA 所需的模块",
    "tokenize_first": "在各 rank 启动前准备好数据",
    "raise_ddp_timeout": "为迟到的 rank 等待更久",
    "skip_gradient_sync": "每个完整步只归约一次梯度",
    "lower_accumulation": "减少每步的微步数",
    "accumulate_smaller_batches": "减小微批并相应增加梯度累积",
    "checkpoint_activations": "只保留少量激活，反向时重新计算",
    "shorten_sequences": "把训练序列截得更短",
    "split_states": "把状态分摊到各设备",
    "use_small_optimizer": "用 8 位存放优化器状态",
    "train_in_bfloat": "用 bfloat16 代替 float16 训练",
    "lower_swap_space": "减少为换出块固定的主机内存",
    "lower_kv_host_cache": "缩小主机上的 KV 缓存",
    "lower_weights_offload": "减少放在主机内存中的权重",
    "raise_shm_size": "为容器提供更大的 /dev/shm",
    "share_host_ipc": "让容器使用主机的 /dev/shm",
    "drop_prompt_logprobs": "客户端不再请求提示的对数概率",
    "disable_fast_image_processor": "在主机上预处理图像",
    "lower_client_concurrency": "客户端减少在途请求",
    "lower_num_scheduler_steps": "每次调度规划更少的解码步",
    "raise_watermark": "接纳请求时预留一部分块",
    "reserve_full_prompts": "整个提示放得下才接纳",
    "raise_schedule_conservativeness": "为将要生成的内容多留空间",
    "disable_mm_preprocessor_cache": "不缓存处理后的图像",
    "enable_continuous_batching": "允许请求加入正在运行的批",
    "raise_max_partial_prefills": "允许多个提示同时分块计算",
    "set_long_prefill_threshold": "每步为短提示留出一部分",
    "upgrade_trainer": "升级训练框架",
}


def means(action: str, lang: str = "en") -> str | None:
    """What to do in plain words, where an engine has no flag for it; None for an action that is not of the list."""
    if action not in ACTIONS:
        return None
    return _IN_CHINESE[action] if lang == "zh" else ACTIONS[action].means


# Other knobs, the same memory: what one gives to the KV pool, the other takes from it.
_CROSSED = (
    frozenset({"raise_kv_capacity", "lower_gpu_memory_utilization"}),
    frozenset({"raise_gpu_memory_utilization", "lower_kv_capacity"}),
)


def opposite(action: str) -> str | None:
    """The action that undoes `action` by design, on the same knob."""
    return ACTIONS[action].opposes


def conflicting(action: str) -> frozenset[str]:
    """Actions that two rules must never advise beside `action`: they push one knob, or one memory, to and fro."""
    crossed = {other for pair in _CROSSED if action in pair for other in pair if other != action}
    back = opposite(action)
    return frozenset(crossed if back is None else crossed | {back})
