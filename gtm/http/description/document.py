"""The edge's OpenAPI document: what can be asked, and what is answered. Served at `/openapi.json`.

Law: codes, outcomes and reasons are those of the code, bounds those of the parsers; the rest is held by tests, which ask whatever the
document allows, and have every answer be one that it describes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gtm import __version__
from gtm.core.decision.decide import Exclusion
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.services import Priority
from gtm.core.model.state import HealthStatus
from gtm.http.problems import CODES, response_of
from gtm.http.requests.lookup import MAX_BATCH, MAX_VALUE
from gtm.http.samples.beacons import MAX_TARGETS
from gtm.http.samples.intake import MAX_BEACON_BYTES, MAX_BEACON_SAMPLES, MAX_SAMPLES, MAX_SAMPLES_BYTES

# --- The values that the edge's OpenAPI document describes, as JSON Schema (2020-12). ---


Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_WHOLE: Schema = {"type": "integer"}
_NULL: Schema = {"type": "null"}

LOOKUP = {
    "service": (TEXT, "Name of the service; required unless `host` is given."),
    "client_ip": (
        TEXT,
        "IPv4 or IPv6 address of the client. Left out: whoever asks. Others than yourself take a token.",
    ),
    "tenant": (TEXT, "A tenant of the policy."),
    "data_class": (TEXT, "A data class of the policy."),
    "host": (
        TEXT,
        "A host name of the service, in place of `service`: with the tenant and data class that it states.",
    ),
    "model": (TEXT, "Only regions that serve this model are candidates."),
    "affinity": (TEXT, "Any text: keeps the client on its region, for services with `affinity: key`."),
    "priority": (
        {"type": "string", "enum": [one.value for one in Priority]},
        "How urgent it is; the service's own if left out, and where a higher one is stated. The lowest is shed first.",
    ),
}
"""What a look-up may state: its schema, and what it means."""


def ref(name: str) -> Schema:
    """The schema of a name."""
    return {"$ref": f"#/components/schemas/{name}"}


def value(schema: Schema) -> Schema:
    """A text as it may be given."""
    return schema if "enum" in schema else {**schema, "minLength": 1, "maxLength": MAX_VALUE}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, _NULL]}


def _list(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def _one_of(values: Iterable[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


def _object(description: str, optional: Mapping[str, Schema] | None = None, /, **required: Schema) -> Schema:
    properties = {**required, **(optional or {})}
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(required),
    }


def _closed(schema: Schema) -> Schema:
    """Without fields that are not described."""
    return {**schema, "additionalProperties": False}


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _asked() -> dict[str, Any]:
    fields = {name: _said(_or_null(value(schema)), meaning) for name, (schema, meaning) in LOOKUP.items()}
    explain = _said(_or_null({"type": "boolean"}), "The whole decision.")
    return {
        "Lookup": _closed(_object("One look-up of a batch.", {**fields, "explain": explain})),
        "Batch": _closed(_object("Look-ups.", requests=_list(ref("Lookup"), maxItems=MAX_BATCH))),
    }


def _decision(region: Schema, endpoint: Schema) -> dict[str, Schema]:
    return {
        "service": TEXT,
        "outcome": _one_of(one.value for one in Outcome),
        "region": region,
        "endpoint": endpoint,
        "ttl": _said(_WHOLE, "Seconds for which the answer may be acted on; 0: for this request."),
        "reason": _one_of(one.value for one in Reason),
        "reasons": _said(
            _list(TEXT), "The same in sentences: why this region, and why none that ranks before it."
        ),
        "client": ref("Client"),
        "rules": _said(_list(ref("Rule")), "Residency rules that matched."),
        "revision": _said(_WHOLE, "Of the policy that the answer comes from."),
        "epoch": _said(_WHOLE, "Of the state of the world."),
    }


def _whole() -> dict[str, Schema]:
    """The schema of an explanation: of an answer, and what an explanation has besides."""
    return {
        "request": _said({"type": "object"}, "The request as it was understood."),
        "ranking_class": _said(TEXT, "The requests planned together with this one."),
        "shed": _said(_NUMBER, "The share of them that is refused for want of capacity."),
        "candidates": _said(_list(ref("Candidate")), "Every member region in rank order."),
        "free_slots": _said(
            {"type": "object"}, "What came of asking for free slots, where balancers report them."
        ),
    }


def _answers() -> dict[str, Any]:
    handoff = {
        "handoff": _said(TEXT, "To be sent to the endpoint as header `gtm-handoff`, for `ttl` seconds.")
    }
    problem = {
        "type": TEXT,
        "title": TEXT,
        "status": _WHOLE,
        "detail": TEXT,
        "instance": TEXT,
        "code": _one_of(CODES),
    }
    error = {
        "error": _said(
            {"type": "object"},
            "The same in OpenAI's form (`message`, `type`, `code`, `param`): where a service is asked by its host name or `/r/`.",
        )
    }
    return {
        "Route": _object(
            "Where a request is served.", {**_whole(), **handoff}, **_decision(TEXT, ref("Endpoint"))
        ),
        "Problem": _object("What went wrong (RFC 9457).", error, **problem),
        "Refusal": _object(
            "Why a request is served nowhere, or not by this edge: a problem with the decision.",
            {
                **_decision(_NULL, _NULL),
                **_whole(),
                **error,
                "edge": _said({"type": "object"}, "Where this edge stands, and which stand inside."),
            },
            **problem,
        ),
        "BatchAnswer": _object(
            "Answers in the order asked.",
            results=_list({"anyOf": [ref("Route"), ref("Refusal"), ref("Problem")]}),
        ),
        "Endpoint": _object(
            "Where to send the request.",
            url=TEXT,
            ipv4=_list(TEXT),
            ipv6=_list(TEXT),
            cname=_or_null(TEXT),
        ),
        "Client": _object(
            "Whom the answer is about.",
            {"subnet": TEXT, "spans": _list(TEXT)},
            ip=_or_null(TEXT),
            country=_or_null(TEXT),
            network=_said(_or_null(TEXT), "The database's network that the address lies in."),
            source=_one_of(["geoip", "override", "none"]),
        ),
        "Rule": _object(
            "A residency rule that matched.",
            {"legal_basis": TEXT, "because": _list(TEXT)},
            name=TEXT,
            mode=_one_of(["enforce", "monitor"]),
        ),
    }


def _explained() -> dict[str, Any]:
    health = _object(
        "What is known of an endpoint.",
        url=TEXT,
        health=_one_of(one.value for one in HealthStatus),
        detail=TEXT,
    )
    return {
        "Candidate": _object(
            "A member region, and what became of it.",
            region=TEXT,
            display_name=TEXT,
            country=TEXT,
            operator_country=_or_null(TEXT),
            rank=_WHOLE,
            share=_said(_NUMBER, "Of such requests, 0 to 1."),
            estimate_ms=_said(_or_null(_NUMBER), "Estimated round trip."),
            estimate_source=_said(_or_null(TEXT), "What that rests on."),
            processing_ms=_said(_or_null(_NUMBER), "What the region itself takes."),
            distance_km=_or_null(_NUMBER),
            excluded=_or_null(_one_of(one.value for one in Exclusion)),
            rules=_said(_list(TEXT), "Those that exclude it."),
            monitored=_said(_list(TEXT), "Those that would, if they were enforced."),
            why=TEXT,
            endpoints=_list(health),
        )
    }


def _others() -> dict[str, Any]:
    measured = {"region": TEXT, "rtt_ms": _said(_NUMBER, "Round trip in milliseconds.")}
    return {
        "Liveness": _object("It lives.", status=TEXT),
        "Readiness": _object("It answers.", status=TEXT, revision=_WHOLE, epoch=_WHOLE),
        "Targets": _object("Regions to measure.", targets=_list(_object("One.", region=TEXT, url=TEXT))),
        "Beacons": _object(
            "What a browser measured.",
            samples=_list(_object("One.", **measured), maxItems=MAX_BEACON_SAMPLES),
        ),
        "Samples": _object(
            "What a balancer measured.",
            samples=_list(_object("One.", client=TEXT, **measured), maxItems=MAX_SAMPLES),
        ),
        "Taken": _object(
            "What became of samples.",
            accepted=_WHOLE,
            refused=_said({"type": "object", "additionalProperties": _WHOLE}, "How many, by reason."),
        ),
    }


# --- The edge's OpenAPI document: what can be asked, and what is answered. Served at `/openapi.json`. ---


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
            "schemas": {**_asked(), **_answers(), **_explained(), **_others()},
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
