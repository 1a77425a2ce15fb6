"""Which server takes a request: filters say who may, scores how good each is, picks who.

One small pure function a file. What is measured (counts, latencies, costs) is measured elsewhere (`gtm.core.balance.flights`);
here it is read. `chooser` puts them together; the data plane needs nothing else.
"""
