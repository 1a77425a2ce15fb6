"""Which checks and scrapes of backends are made, how often, and what they expect. The defaults are for vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from types import MappingProxyType

from gtm.adapters.servers import ServerType
from gtm.balancer.health.asking import CheckKey
from gtm.core.balance.health import Check, Thresholds

MAX_SERVICE = 200
"""Characters of a gRPC service's name."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """GET of a path, answered with one of these statuses. Times in seconds; `up` and `down`: results in a row.

    `port`: where that is answered; None: the backend's own.
    """

    path: str = "/health"
    status: tuple[int, ...] = (200,)
    interval: float = 1.0
    timeout: float = 0.8
    up: int = 2
    down: int = 2
    port: int | None = None


@dataclass(frozen=True, slots=True)
class GrpcHealthCheck:
    """`grpc.health.v1.Health/Check`, answered with SERVING. The rest as `HealthCheck`.

    `service`: whose health is asked for; empty: the whole server's.
    """

    service: str = ""
    port: int | None = None
    interval: float = 1.0
    timeout: float = 0.8
    up: int = 2
    down: int = 2


@dataclass(frozen=True, slots=True)
class ModelList:
    """GET of the list of models, which says what is loaded. `required`: it is a check too.

    It passes if every model that the backend is configured for is listed, or any where none is.
    """

    path: str = "/v1/models"
    required: bool = False
    interval: float = 5.0
    timeout: float = 2.0
    up: int = 1
    down: int = 2


class CompletionKind(StrEnum):
    """What a completion check asks a server to do."""

    AUTO = "auto"
    """A completion; of a server that has none, a chat; else an embedding."""
    COMPLETION = "completion"
    CHAT = "chat"
    EMBEDDING = "embedding"
    NONE = "none"
    """Nothing: it serves what no check asks for."""


PATHS: Mapping[CompletionKind, str] = MappingProxyType(
    {
        CompletionKind.COMPLETION: "/v1/completions",
        CompletionKind.CHAT: "/v1/chat/completions",
        CompletionKind.EMBEDDING: "/v1/embeddings",
    }
)
"""Where each kind is asked for, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class CompletionCheck:
    """POST of a completion of one token, or of what else makes a model work.

    `path`: None: that of the kind; of one that is given, the end says the kind. `model`: None: the first one that the backend is configured
    for, else the first that it lists. One that failed is made again after `timeout`, not `interval`.
    """

    path: str | None = None
    kind: CompletionKind = CompletionKind.AUTO
    model: str | None = None
    interval: float = 30.0
    timeout: float = 10.0
    up: int = 1
    down: int = 2


@dataclass(frozen=True, slots=True)
class MetricsScrape:
    """GET of metrics. `port`: where they are; None: the backend's own. `server_type`: whose they are; None: as they say.

    Where there are none, it looks again each half a minute.
    """

    path: str = "/metrics"
    port: int | None = None
    server_type: ServerType | None = None
    interval: float = 1.0
    timeout: float = 0.8


@dataclass(frozen=True, slots=True)
class OwnChecks:
    """What checks of one backend have of their own; None: as those of all. `key`: what they show to it."""

    key: CheckKey | None = None
    kind: CompletionKind | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """What is made of each backend; None: not made.

    `warm_up`: completions of one token that a backend gets that was down, before it counts as up. `key`: what checks show to each.
    """

    health: HealthCheck | GrpcHealthCheck | None = HealthCheck()
    models: ModelList | None = ModelList()
    completion: CompletionCheck | None = None
    scrape: MetricsScrape | None = MetricsScrape()
    warm_up: int = 0
    key: CheckKey | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ValueError: a setting is impossible; says which, of what.
        """
        for name in ("health", "models", "completion", "scrape"):
            one = getattr(self, name)
            if one is None:
                continue
            if isinstance(one, GrpcHealthCheck):
                if len(one.service) > MAX_SERVICE or not (
                    one.service.isascii() and one.service.isprintable()
                ):
                    raise ValueError(
                        f"checks: the service of `{name}` is `{one.service[:80]}`; write a gRPC service's full name, "
                        f"as `inference.GRPCInferenceService`, of at most {MAX_SERVICE} characters"
                    )
            elif one.path is not None and (
                not one.path.startswith("/")
                or not one.path.isascii()
                or not one.path.isprintable()
                or " " in one.path
            ):
                raise ValueError(
                    f"checks: the path of `{name}` is `{one.path[:80]}`; write one like `/{name}`"
                )
            for number in ("interval", "timeout"):
                value = getattr(one, number)
                if not (value > 0 and isfinite(value)):
                    raise ValueError(f"checks: the {number} of `{name}` is {value}; give seconds above 0")
            port = getattr(one, "port", None)
            if port is not None and not 0 < port < 65536:
                raise ValueError(f"checks: the port of `{name}` is {port}; give one from 1 to 65535")
        if self.warm_up < 0:
            raise ValueError(f"checks: `warm_up` is {self.warm_up}; give a number of requests, or 0")
        self.thresholds()

    def thresholds(self) -> Mapping[Check, Thresholds]:
        """The checks that a backend must pass, as `gtm.core.balance.health.Settings.checks`.

        Raises:
            ValueError: a threshold is impossible.
        """
        found: dict[Check, Thresholds] = {}
        if self.health is not None:
            found[Check.HEALTH] = Thresholds(self.health.up, self.health.down)
        if self.models is not None and self.models.required:
            found[Check.MODELS] = Thresholds(self.models.up, self.models.down)
        if self.completion is not None:
            found[Check.COMPLETION] = Thresholds(self.completion.up, self.completion.down)
        return found
