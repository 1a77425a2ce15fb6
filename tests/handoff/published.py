"""What whoever verifies handoffs reads of a published JWK set."""

from __future__ import annotations

import json


def keys_in(content: bytes) -> list[str]:
    """The public keys of a set, as gtm writes them (`gtm.core.handoff.keys.key_text`)."""
    return [key["x"] for key in json.loads(content)["keys"]]
