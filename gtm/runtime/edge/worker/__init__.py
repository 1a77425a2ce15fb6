"""One answering process of an edge: `python -m gtm.runtime.edge.worker.worker NAME`, started by the agent only."""
