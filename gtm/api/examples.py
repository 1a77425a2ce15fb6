"""A worked example of each kind's document, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

_DOCUMENTS: dict[str, dict[str, Any]] = {
    "regions": {
        "display_name": "Frankfurt",
        "lat": 50.1109,
        "lon": 8.6821,
        "country": "DE",
        "endpoints": [{"url": "https://fra.example.com", "ipv4": ["192.0.2.10"]}],
        "models": ["llama-3.1-8b"],
        "capacity": {"outstanding": 512},
        "probe": {"type": "https", "path": "/healthz", "interval": 5, "timeout": 2},
    },
    "zones": {
        "primary_ns": "ns1.example.com",
        "hostmaster": "hostmaster.example.com",
        "name_servers": [
            {"name": "ns1.example.com", "ipv4": ["192.0.2.53"], "ipv6": ["2001:db8::53"]},
            {"name": "ns2.example.net"},
        ],
        "records": [{"name": "@", "type": "MX", "data": ["10 mail.example.net."]}],
    },
    "services": {
        "members": [{"region": "eu-central"}, {"region": "eu-west", "weight": 0.5}],
        "hostnames": ["chat.gtm.example.com"],
        "zone": "gtm.example.com",
        "ttl": 30,
        "steering": "latency",
        "refusal": {"ipv4": ["192.0.2.99"]},
    },
    "residency_rules": {
        "match": {"services": ["chat"], "client_jurisdictions": ["EEA"]},
        "allow": {"jurisdictions": ["EEA"]},
        "legal_basis": "Regulation (EU) 2016/679, Chapter V",
    },
    "spillover_rules": {"from_region": "eu-central", "to_regions": ["eu-west"], "max_share": 0.3},
    "jurisdictions": {"display_name": "DACH", "members": ["DE", "AT", "CH"], "source": "company policy 7"},
    "tenants": {"display_name": "Clinic"},
    "data_classes": {"display_name": "Health data"},
}

EXAMPLES: dict[str, dict[str, Any]] = {
    kind: {"typical": {"summary": f"A typical document ({kind})", "value": document}}
    for kind, document in _DOCUMENTS.items()
}
"""Kind → examples as OpenAPI wants them."""
