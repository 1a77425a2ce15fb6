"""Errors in the form that OpenAI's clients read: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of the answer.
        message: what was wrong, where, and what to do.
        code: for programs.
        param: the field that was wrong.
        retry_after: seconds for the header.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        code: str,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def document(self) -> dict[str, Any]:
        """The answer's body."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


_TYPES = {
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalServerError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}


def bad_request(message: str, code: str = "invalid_request", param: str | None = None) -> ApiError:
    """400."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, code, param)


def engine_dead() -> ApiError:
    """What vLLM's API server says where its engine has died (`EngineDeadError`)."""
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, message, "engine_dead")


def internal_error() -> ApiError:
    """500, switched on."""
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR, "Internal server error (a simulated fault).", "internal_error"
    )
