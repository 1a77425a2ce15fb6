"""The data plane of one region: an HTTP/1.1 streaming reverse proxy that asks `gtm.core.balance` where each request goes."""
