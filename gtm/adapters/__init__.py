"""Reading how busy somebody else's servers are: metrics of model servers and balancers, as gtm's load signals.

A page of theory. Servers say two kinds of things: what is now (gauges: requests running, waiting) and what has been since they
started (counters, sums of histograms). Gauges are signals as they are. Of counters only the growth between two scrapes means
something: requests per second are growth over time, a mean service time is the growth of the sum over the growth of the count.

Laws:
  1. What is not there is unknown, never 0: a series that is missing, NaN, or of a server that did not answer, gives no signal.
  2. A counter that fell has begun anew (the server restarted); the interval across that says nothing.
  3. Whatever a server answers is bounded in size before it is read, and damaged text is an error with the line, never a guess.

`exposition` reads Prometheus' text format, `servers` knows which series mean what, `scrape` turns two scrapes into signals.
"""
