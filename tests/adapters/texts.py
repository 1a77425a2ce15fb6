"""What servers answer, in the shape in which they answer it; numbers are placed so that no two are the same."""

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="llama"} 7.0
vllm:num_requests_running{engine="1",model_name="llama"} 4.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="llama"} 2.0
vllm:num_requests_waiting{engine="1",model_name="llama"} 1.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="llama"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="llama"} 0.75
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="llama"} %(tokens)s
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="llama"} %(tokens)s
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="llama"} 1.7e+09
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="llama"} 1.7e+09
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="llama"} %(stopped)s
vllm:request_success_total{engine="0",finished_reason="length",model_name="llama"} 30.0
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_sum{engine="0",model_name="llama"} %(waited_s)s
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="llama"} 9.0
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="llama"} 130.0
vllm:request_queue_time_seconds_count{engine="0",model_name="llama"} %(served)s
# TYPE vllm:request_inference_time_seconds histogram
vllm:request_inference_time_seconds_sum{engine="0",model_name="llama"} %(served_s)s
vllm:request_inference_time_seconds_bucket{engine="0",le="+Inf",model_name="llama"} 130.0
vllm:request_inference_time_seconds_count{engine="0",model_name="llama"} %(served)s
"""

SGLANG = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="llama",tp_rank="0",pp_rank="0"} 9.0
sglang:num_running_reqs{model_name="llama",tp_rank="1",pp_rank="0"} 9.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="llama",tp_rank="0",pp_rank="0"} 3.0
sglang:num_queue_reqs{model_name="llama",tp_rank="1",pp_rank="0"} 3.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="llama",tp_rank="0",pp_rank="0"} 0.28
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="llama"} %(tokens)s
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="llama"} %(tokens)s
# TYPE sglang:e2e_request_latency_seconds histogram
sglang:e2e_request_latency_seconds_sum{model_name="llama"} %(whole_s)s
sglang:e2e_request_latency_seconds_bucket{le="+Inf",model_name="llama"} 130.0
sglang:e2e_request_latency_seconds_count{model_name="llama"} %(served)s
# TYPE sglang:queue_time_seconds histogram
sglang:queue_time_seconds_sum{model_name="llama"} %(waited_s)s
sglang:queue_time_seconds_bucket{le="+Inf",model_name="llama"} 130.0
sglang:queue_time_seconds_count{model_name="llama"} %(served)s
"""

TGI = """\
# TYPE tgi_request_success counter
tgi_request_success{kind="single"} %(served)s

# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 11

# TYPE tgi_queue_size gauge
tgi_queue_size 4

# TYPE tgi_request_inference_duration histogram
tgi_request_inference_duration_bucket{le="+Inf"} 130
tgi_request_inference_duration_sum %(served_s)s
tgi_request_inference_duration_count %(served)s

# TYPE tgi_request_queue_duration histogram
tgi_request_queue_duration_bucket{le="+Inf"} 130
tgi_request_queue_duration_sum %(waited_s)s
tgi_request_queue_duration_count %(served)s

# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{le="+Inf"} 130
tgi_request_generated_tokens_sum %(tokens)s
tgi_request_generated_tokens_count %(served)s
# TYPE tgi_request_input_length histogram
tgi_request_input_length_bucket{le="+Inf"} 130
tgi_request_input_length_sum %(tokens)s
tgi_request_input_length_count %(served)s
"""

TRITON = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="llama",version="1"} %(served)s
# TYPE nv_inference_request_duration_us counter
nv_inference_request_duration_us{model="llama",version="1"} %(whole_us)s
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="llama",version="1"} %(waited_us)s
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="llama",version="1"} 6
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 80000000000.0
nv_gpu_memory_total_bytes{gpu_uuid="GPU-2"} 80000000000.0
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 30000000000.0
nv_gpu_memory_used_bytes{gpu_uuid="GPU-2"} 10000000000.0
"""

STUB_STATUS = """\
Active connections: 291 \nserver accepts handled requests
 16630948 16630948 %(served)s \nReading: 6 Writing: 180 Waiting: 106 \n"""

EARLIER = {
    "tokens": 1000.0,
    "stopped": 100.0,
    "served": 130,
    "served_s": 250.0,
    "waited_s": 20.0,
    "whole_s": 270.0,
    "whole_us": 270e6,
    "waited_us": 20e6,
}
LATER = {
    "tokens": 1800.0,
    "stopped": 110.0,
    "served": 140,
    "served_s": 280.0,
    "waited_s": 25.0,
    "whole_s": 305.0,
    "whole_us": 305e6,
    "waited_us": 25e6,
}
"""Four seconds later: ten requests more, which were served for 3 s each after 0.5 s in the queue, and 800 tokens."""
