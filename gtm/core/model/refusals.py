"""What clients of model APIs read of a refusal of gtm's own, beside the problem document (RFC 9457 §3.2 lets it have further members).

OpenAI's SDKs show `error.message`, and raise by the status; those of Anthropic show the whole document. Without `error` Node's says "451 status code (no body)".
"""

from __future__ import annotations

_TYPES = {
    400: "invalid_request_error",
    404: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


def error_member(status: int, code: str, detail: str) -> dict[str, str | None]:
    """The member `error` as OpenAI's API has it: for whom, of a refusal with this status and stable code, and what was wrong."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "gtm_refusal")
    return {"message": detail, "type": kind, "code": code, "param": None}
