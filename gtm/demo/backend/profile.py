"""How fast a simulated server is, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

BLOCK = 16
"""Tokens of a KV block (vLLM's default on GPUs)."""


class ProfileError(ValueError):
    """A profile that no server could have; the message names the field."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One server. The defaults are those of an 8-billion-parameter model on one GPU with 80 GB, roughly.

    Raises:
        ProfileError: a number makes no sense, or the longest context does not fit into the KV blocks.
    """

    max_num_seqs: int = 64
    """Slots: sequences in one batch."""
    max_num_batched_tokens: int = 2048
    """Tokens of one step: those of all decoding sequences, and chunks of prompts with what is left."""
    step_s: float = 0.012
    """Seconds that a step takes before anything is in it: the weights are read once."""
    step_per_sequence_s: float = 0.0002
    """Seconds more for each sequence that decodes in it: its KV cache is read."""
    prefill_tokens_per_second: float = 10_000.0
    kv_blocks: int = 8192
    """KV blocks in the GPU's memory, of 16 tokens each."""
    cached_blocks: int | None = None
    """Blocks of finished sequences kept for their prefixes; None: all that nobody needs, 0: no prefix cache."""
    max_model_len: int = 8192
    """Tokens of a prompt and its answer at most."""
    model_load_s: float = 20.0
    lora_load_s: float = 0.5
    max_loras: int = 8
    """Adapters that may be loaded at a time."""
    gpu_memory_bytes: int = 80 * 10**9
    weights_bytes: int = 16 * 10**9
    lora_bytes: int = 10**8
    block_bytes: int = 2 * 10**6

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "max_model_len", "max_loras"):
            if getattr(self, name) < 1:
                raise ProfileError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("step_s", "prefill_tokens_per_second"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ProfileError(f"{name} must be more than 0 and finite, not {getattr(self, name)}")
        for name in ("step_per_sequence_s", "model_load_s", "lora_load_s", "weights_bytes", "lora_bytes"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ProfileError(f"{name} must be 0 or more and finite, not {getattr(self, name)}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ProfileError(
                "max_num_batched_tokens must be at least max_num_seqs: each needs a token of a step"
            )
        if self.max_model_len > self.kv_blocks * BLOCK:
            raise ProfileError(
                f"max_model_len ({self.max_model_len}) does not fit into {self.kv_blocks} blocks of {BLOCK} tokens"
            )

    def step_seconds(self, decoding: int, prefill_tokens: int) -> float:
        """How long a step takes in which some sequences decode, and some tokens of prompts are processed."""
        return (
            self.step_s
            + self.step_per_sequence_s * decoding
            + prefill_tokens / self.prefill_tokens_per_second
        )

    def faster(self, factor: float) -> Profile:
        """The same server in a world where time runs faster.

        Raises:
            ProfileError: the factor is none.
        """
        if not 0 < factor < float("inf"):
            raise ProfileError(f"the speed must be more than 0 and finite, not {factor}")
        return replace(
            self,
            step_s=self.step_s / factor,
            step_per_sequence_s=self.step_per_sequence_s / factor,
            prefill_tokens_per_second=self.prefill_tokens_per_second * factor,
            model_load_s=self.model_load_s / factor,
            lora_load_s=self.lora_load_s / factor,
        )
