"""The control tier's HTTP interface: FastAPI over the use cases in `gtm.control`."""
