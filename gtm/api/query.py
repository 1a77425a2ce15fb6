"""Which query parameters there are."""

from __future__ import annotations

from fastapi import Request
from fastapi.exceptions import RequestValidationError


async def known_query(request: Request) -> None:
    """Reject query parameters that the endpoint does not have: a misspelt one would silently do nothing.

    Raises:
        RequestValidationError: with each of them.
    """
    dependant = getattr(request.scope.get("route"), "dependant", None)
    if dependant is None:
        return
    known = {field.alias for field in dependant.query_params}
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError(
            [
                {"type": "extra_forbidden", "loc": ("query", name), "msg": "", "input": None}
                for name in dict.fromkeys(unknown)
            ]
        )
