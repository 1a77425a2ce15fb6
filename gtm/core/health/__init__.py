"""From probes to verdicts: thresholds, votes that would end too much at once, and ramps after a failure."""
