"""The keys by which handoffs are verified, for whoever does."""

from __future__ import annotations

from fastapi import Response

from gtm.api.context import Ctx
from gtm.api.query import strict_router
from gtm.api.schemas.base import errors
from gtm.control.errors import Unavailable
from gtm.core.handoff.claims import Issuer
from gtm.handoff import jwks

router = strict_router(prefix="/v1", tags=["edges"], public=True)


_SET = {
    "description": "Every key that edges sign handoffs with, will or did (RFC 7517 §5, RFC 8037 §2).",
    "content": {
        jwks.MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "required": ["keys"],
                "properties": {
                    "keys": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["kty", "crv", "x", "kid", "use", "alg"],
                            "properties": {
                                "kty": {"const": "OKP"},
                                "crv": {"const": "Ed25519"},
                                "x": {"type": "string", "description": "The key, in base64url."},
                                "kid": {"type": "string", "description": "Its thumbprint (RFC 7638)."},
                                "use": {"const": "sig"},
                                "alg": {"const": "EdDSA"},
                            },
                        },
                    }
                },
            }
        }
    },
}


@router.get(
    "/handoff/jwks.json",
    description="For everybody: public keys alone, without the names of edges. Every edge publishes them too, at "
    f"`{jwks.PATH}`.",
    response_class=Response,
    responses={200: _SET, **{status: errors()[status] for status in (400, 422, 503)}},
)
async def handoff_keys(ctx: Ctx) -> Response:
    """The keys by which signed handoffs are verified."""
    ctx.leading()
    known = ctx.present.handoff_keys
    if not known.version:
        raise Unavailable(
            "the keys are not known yet: the database cannot be reached; try again",
            headers={"Retry-After": "1"},
        )
    return Response(
        jwks.written(key.x for key in known.keys if key.kind is Issuer.EDGE),
        media_type=jwks.MEDIA_TYPE,
        headers={"Cache-Control": f"public, max-age={jwks.KEPT}"},
    )
