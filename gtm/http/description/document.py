"""The edge's OpenAPI document: what can be asked, and what is answered. Served at `/openapi.json`.

Law: codes, outcomes and reasons are those of the code, bounds those of the parsers; the rest is held by tests, which ask whatever the
document allows, and have every answer be one that it describes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gtm import __version__
from gtm.http.description.schemas import LOOKUP, TEXT, ref, schemas, value
from gtm.http.problems import CODES, response_of
from gtm.http.requests.lookup import MAX_VALUE
from gtm.http.samples.beacons import MAX_TARGETS
from gtm.http.samples.intake import MAX_BEACON_BYTES, MAX_BEACON_SAMPLES, MAX_SAMPLES, MAX_SAMPLES_BYTES


def document() -> dict[str, Any]:
    """The document (OpenAPI 3.1)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gtm edge",
            "description": "Which region should serve this request? Answered from memory, without a database, whatever else is down.",
            "version": __version__,
        },
        "paths": _paths(),
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed to ask about others than yourself.",
                }
            },
        },
    }


def _paths() -> dict[str, Any]:
    return {
        "/v1/route": {
            "get": _operation(
                "route",
                "Which region serves one request",
                "A tenant or data class that is not stated counts as one that every rule matches. What is unknown, repeated, empty or longer than "
                f"{MAX_VALUE} characters is an error. A refusal (421, 429, 451; 503 but for `not_ready`) is a problem document that holds the decision.",
                parameters=[*_parameters(), _flag()],
                answers={
                    "200": _json("The region.", "Route"),
                    **_problems("Problem", (400, 401, 403, 404, 414, 422, 500, 503)),
                    **_problems("Refusal", (421, 429, 451)),
                },
            )
        },
        "/v1/route:batch": {
            "post": _operation(
                "route_batch",
                "Which regions serve many requests",
                "All answered from the View of their moment; `results` are in the order of `requests`, each what the look-up would have got by itself.",
                body="Batch",
                answers={
                    "200": _json("The answers.", "BatchAnswer"),
                    **_problems("Problem", (400, 401, 403, 408, 413, 415, 500)),
                },
            )
        },
        "/healthz": {
            "get": _operation(
                "healthz", "Whether the process lives", "", answers={"200": _json("It does.", "Liveness")}
            )
        },
        "/readyz": {
            "get": _operation(
                "readyz",
                "Whether answers are correct",
                "",
                answers={"200": _json("They are.", "Readiness"), **_problems("Problem", (503,))},
            )
        },
        "/v1/beacon-targets": {
            "get": _operation(
                "beacon_targets",
                "Regions that the caller may measure",
                f"At most {MAX_TARGETS} to which it may be sent now, shuffled. For pages of any origin.",
                parameters=[
                    {
                        "name": "service",
                        "in": "query",
                        "required": True,
                        "schema": value(TEXT),
                        "description": "Name of the service.",
                    }
                ],
                answers={
                    "200": _json("The regions.", "Targets"),
                    **_problems("Refusal", (421,)),
                    **_problems("Problem", (400, 404, 500, 503)),
                },
            )
        },
        "/v1/beacons": {
            "post": _operation(
                "send_beacons",
                "Round trips that a browser measured",
                f"The client is the caller. At most {MAX_BEACON_SAMPLES} in {MAX_BEACON_BYTES // 1024} KiB.",
                body="Beacons",
                answers={
                    "200": _json("What became of them.", "Taken"),
                    **_problems("Problem", (400, 404, 408, 413, 415, 500, 503)),
                },
            )
        },
        "/v1/latency-samples": {
            "post": _operation(
                "send_latency_samples",
                "Round trips that a balancer measured",
                f"With a token of role `balancer` or `reporter`. At most {MAX_SAMPLES:,} in {MAX_SAMPLES_BYTES // 1024**2} MiB.",
                body="Samples",
                answers={
                    "200": _json("What became of them.", "Taken"),
                    **_problems("Problem", (400, 401, 403, 408, 413, 415, 500, 503)),
                },
            )
        },
    }


def _operation(
    name: str,
    summary: str,
    description: str,
    *,
    answers: Mapping[str, Any],
    parameters: Iterable[Mapping[str, Any]] = (),
    body: str | None = None,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": dict(answers),
        "security": [{}, {"bearer": []}],
    }
    if description:
        found["description"] = description
    if parameters:
        found["parameters"] = list(parameters)
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": ref(body)}}}
    return found


def _parameters() -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": False, "schema": value(schema), "description": meaning}
        for name, (schema, meaning) in LOOKUP.items()
    ]


def _flag() -> dict[str, Any]:
    schema = {"type": "string", "enum": ["0", "1", "false", "true"]}
    return {
        "name": "explain",
        "in": "query",
        "required": False,
        "schema": schema,
        "description": "`1`: the whole decision.",
    }


def _json(description: str, schema: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": ref(schema)}}}


def _problems(schema: str, statuses: Iterable[int]) -> dict[str, Any]:
    return {
        str(status): {
            "description": "; ".join(title for of, title in CODES.values() if of == status) + ".",
            "content": {"application/problem+json": {"schema": ref(schema)}},
        }
        for status in statuses
    }


DESCRIPTION = response_of(
    200,
    ((b"content-type", b"application/json"), (b"cache-control", b"public, max-age=300")),
    msgspec.json.encode(document()),
)
"""The answer to who asks for it."""
