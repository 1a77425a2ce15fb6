"""What a profile comes to, as a formula: simulated servers are held against it."""

from __future__ import annotations

from gtm.demo.backend.profile import Profile


def decode_rate(profile: Profile, sequences: int) -> float:
    """Tokens per second of each of some sequences that all decode."""
    return 1 / profile.step_seconds(sequences, 0)


def first_token_seconds(profile: Profile, prompt_tokens: int, cached_tokens: int = 0) -> float:
    """From the start of a step to a prompt's first token, where nobody else decodes."""
    left = prompt_tokens - cached_tokens
    steps = -(-left // profile.max_num_batched_tokens)
    return steps * profile.step_seconds(0, 0) + left / profile.prefill_tokens_per_second
