"""Simulated model servers: OpenAI's API, vLLM's metrics and ways to fail, no model.

What matters to a balancer of a model server is when tokens come. With continuous batching (Yu et al., "Orca: A Distributed Serving System
for Transformer-Based Generative Models", OSDI 2022) the server works in steps, and each step does a little for many requests at once:

    step:   1 token for each sequence that decodes, and chunks of prompts as far as `max_num_batched_tokens` goes
    takes:  step_s + step_per_sequence_s × decoding + prefill_tokens / prefill_tokens_per_second

The first term is what it costs to read the weights once, whoever shares it; the second to read each sequence's KV cache; the third is
arithmetic on prompts, which is compute-bound ("chunked prefill": Agrawal et al., "Sarathi-Serve", OSDI 2024). All else follows:

    n sequences decode          each gets 1 / (step_s + n · step_per_sequence_s) tokens a second: fewer each, more in all
    a prompt of p tokens,       ⌈(p − c) / (max_num_batched_tokens − n)⌉ steps until its first token, c of them known from the prefix
      n others decode             cache; the others' next tokens come later by its share
    n = max_num_seqs            the next request waits
    blocks run out              the next request waits; those that grow push out the latest (recompute preemption)

Worked example, with the defaults: alone, a sequence gets 1 / (12 + 0.2 ms) = 82 tokens/s; 64 together get 40 each, 2,580 in all. A prompt
of 4,000 tokens on an idle server takes two steps of 12 ms and 400 ms of arithmetic: 424 ms; with 3,200 of them in the prefix cache,
92 ms.

Laws:
  1. The rules are pure, with time as an argument: `profile`, `tokens`, `blocks`, `scheduler`, `models`, `faults`, `meters`, `engine`.
     `protocol`, `streams` and `server` do the I/O.
  2. The same request gets the same answer, in every process.
  3. A client that is gone holds nothing: no slot, no block, no place in the queue, from the moment in which the socket says so.
  4. One timer drives all streams of a server: at the end of a step, what it made goes to each client in one write.

Sources: vLLM's scheduler (`vllm/v1/core/sched/scheduler.py`), block pool (`vllm/v1/core/block_pool.py`), metrics
(`vllm/v1/metrics/loggers.py`) and OpenAI server (`vllm/entrypoints/openai`); OpenAI's API reference for the wire.
"""
