from lmdeploy import pipeline, TurbomindEngineConfig

pipe = pipeline(
    "internlm/internlm2_5-7b-chat",
    backend_config=TurbomindEngineConfig(
        session_len=32768,
        cache_max_entry_count=0.1,
        max_batch_size=64,
    ),
)
