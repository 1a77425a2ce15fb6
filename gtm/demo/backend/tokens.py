"""Tokens without a tokenizer, and answers without a model.

A token is four bytes of UTF-8, which is close to what tokenizers make of English. Each message of a chat is filled up with spaces
to whole tokens, so that a conversation that goes on begins, token for token, with what was said before, the answers too:
that is what prefix caches live from. An answer is a walk through a list of three-letter words, each with its space one token; where it
begins and how far it strides is drawn by a hash from the prompt, and so is its length where nobody says one.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from math import exp, log

from gtm.demo.backend.profile import BLOCK

TOKEN_BYTES = 4
MEAN_ANSWER = 120
"""About the median of tokens of an answer whose length nobody says."""
LONGEST_ANSWER = 2000
_BLOCK_BYTES = BLOCK * TOKEN_BYTES

WORDS = (
    "act", "add", "age", "air", "all", "and", "any", "arm", "art", "ask", "bad", "bag", "bay", "bed", "big", "bit",
    "box", "boy", "bus", "buy", "can", "car", "cat", "cow", "cup", "cut", "day", "dog", "dry", "ear", "eat", "egg",
    "end", "eye", "far", "few", "fly", "for", "fun", "gas", "get", "god", "guy", "hat", "her", "him", "his", "hot",
    "how", "ice", "its", "job", "joy", "key", "kid", "law", "lay", "leg", "let", "lie", "lot", "low", "man", "map",
    "may", "men", "mix", "net", "new", "nor", "not", "now", "off", "oil", "old", "one", "our", "out", "own", "pay",
    "pen", "per", "pet", "pie", "pin", "pop", "pot", "put", "ran", "raw", "red", "rid", "row", "run", "sad", "sat",
    "saw", "say", "sea", "see", "set", "she", "sir", "sit", "six", "sky", "son", "sun", "tax", "tea", "ten", "the",
    "tie", "tip", "toe", "top", "toy", "try", "two", "use", "van", "war", "was", "way", "wet", "who", "why", "win",
    "yes", "yet", "you", "zoo",
)  # fmt: skip


def padded(text: str) -> bytes:
    """A text's bytes, filled up to whole tokens."""
    content = text.encode("utf-8", "surrogatepass")
    return content + b" " * (-len(content) % TOKEN_BYTES)


def chat_prompt(messages: Iterable[tuple[str, str]]) -> bytes:
    """What a chat's messages (role, text) become before the model sees them, with the opening of the answer."""
    # The answer that follows `assistant` is whole tokens, as a message of that role is without its opening.
    turns = (padded(f"<|{role}|>") + padded(text) for role, text in messages)
    return b"".join(turns) + padded("<|assistant|>")


class Content:
    """A prompt and the answer that it gets.

    Args:
        prompt: its bytes, of whole tokens and at least one.
        salt: what else decides what the KV cache holds: the model or adapter.
    """

    __slots__ = ("_keys", "_prompt", "_start", "_stride", "prompt_tokens", "usual_length")

    def __init__(self, prompt: bytes, salt: str) -> None:
        self._prompt = prompt
        self.prompt_tokens = len(prompt) // TOKEN_BYTES
        drawn = int.from_bytes(blake2b(prompt, digest_size=8, key=salt.encode()[:64]).digest())
        self._start = drawn % len(WORDS)
        self._stride = 1 + (drawn >> 16) % (len(WORDS) - 1)
        self.usual_length = _length((drawn >> 32) / 2**32)
        self._keys = [hash(salt)]

    def word(self, number: int) -> str:
        """A token of the answer, counted from 0: a space and a word."""
        return " " + WORDS[(self._start + number * self._stride) % len(WORDS)]

    def text(self, tokens: int) -> str:
        """So many tokens of the answer."""
        return "".join(map(self.word, range(tokens)))

    def key(self, block: int) -> int:
        """What tells a full block, counted from 0, and all before it from others: a chain of hashes, as vLLM's."""
        keys = self._keys
        while len(keys) < block + 2:
            keys.append(hash((keys[-1], self._block(len(keys) - 1))))
        return keys[block + 1]

    def _block(self, number: int) -> bytes:
        begin, end = number * _BLOCK_BYTES, (number + 1) * _BLOCK_BYTES
        if end <= len(self._prompt):
            return self._prompt[begin:end]
        first = max(0, number * BLOCK - self.prompt_tokens)
        last = (number + 1) * BLOCK - self.prompt_tokens
        return self._prompt[begin:] + "".join(map(self.word, range(first, last))).encode()


def _length(draw: float) -> int:
    """Tokens of an answer, from a draw of 0 to 1: logistic in the logarithm, so that a few are long."""
    draw = min(max(draw, 1e-6), 1 - 1e-6)
    return max(1, min(LONGEST_ANSWER, round(MEAN_ANSWER * exp(_LOGISTIC * _logit(draw)))))


_LOGISTIC = 0.4


def _logit(draw: float) -> float:
    return log(draw / (1 - draw))
