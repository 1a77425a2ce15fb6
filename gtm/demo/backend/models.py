"""Which models and adapters a server has loaded, and what they take of its GPU memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from gtm.demo.backend.errors import ApiError, bad_request
from gtm.demo.backend.profile import Profile


@dataclass(slots=True)
class Adapter:
    """A LoRA adapter. `loaded_at`: seconds on the engine's clock, possibly to come."""

    name: str
    path: str
    parent: str
    loaded_at: float


class Models:
    """The models of one server.

    Args:
        profile: their sizes and load times.
        names: the models that it knows, the first being the default parent of adapters.
        loaded: whether they are there from the beginning.
        on_demand: whether a request for a model that is not loaded loads it, and waits; else it gets 404.
    """

    def __init__(
        self, profile: Profile, names: Iterable[str], *, loaded: bool = True, on_demand: bool = False
    ) -> None:
        self._profile = profile
        self.names = tuple(names)
        self.on_demand = on_demand
        self._loaded_at: dict[str, float] = {}
        self._adapters: dict[str, Adapter] = {}
        for name in self.names if loaded else ():
            self.load(name, float("-inf"))

    def memory_used(self) -> int:
        """Bytes of GPU memory: the KV blocks are set aside at once, as vLLM does."""
        profile = self._profile
        return (
            profile.kv_blocks * profile.block_bytes
            + len(self._loaded_at) * profile.weights_bytes
            + len(self._adapters) * profile.lora_bytes
        )

    def load(self, name: str, now: float) -> float:
        """Begin to load a model, unless it is there or on its way; when it is there.

        Raises:
            ApiError: nobody knows it, or the GPU's memory does not hold it.
        """
        if name not in self.names:
            raise self.unknown(name)
        if name not in self._loaded_at:
            self._check_memory(name, self._profile.weights_bytes)
            self._loaded_at[name] = now + self._profile.model_load_s
        return self._loaded_at[name]

    def unload(self, name: str) -> None:
        """Drop a model and its adapters.

        Raises:
            ApiError: it is not loaded.
        """
        if self._loaded_at.pop(name, None) is None:
            raise self.unknown(name)
        self._adapters = {key: one for key, one in self._adapters.items() if one.parent != name}

    def load_adapter(self, name: str, path: str, now: float, parent: str | None = None) -> float:
        """Begin to load an adapter; when it is there.

        Raises:
            ApiError: it is there, its model is not, or there is no room for it.
        """
        if not name or not path:
            raise bad_request("Both 'lora_name' and 'lora_path' must be provided.", "invalid_user_input")
        if name in self._adapters or name in self.names:
            raise bad_request(f"The lora adapter '{name}' has already been loaded.", "invalid_user_input")
        parent = parent or self.names[0]
        if parent not in self._loaded_at:
            raise self.unknown(parent)
        if len(self._adapters) >= self._profile.max_loras:
            raise bad_request(
                f"There are {len(self._adapters)} lora adapters already, as many as may be: unload one first.",
                "invalid_user_input",
            )
        self._check_memory(name, self._profile.lora_bytes)
        at = max(now, self._loaded_at[parent]) + self._profile.lora_load_s
        self._adapters[name] = Adapter(name, path, parent, at)
        return at

    def unload_adapter(self, name: str) -> None:
        """Drop an adapter.

        Raises:
            ApiError: there is none of that name.
        """
        if self._adapters.pop(name, None) is None:
            raise ApiError(
                HTTPStatus.NOT_FOUND, f"The lora adapter '{name}' cannot be found.", "lora_not_found"
            )

    def ready_at(self, name: str, now: float) -> tuple[str, float]:
        """The base model of a name, and from when on a request for it can run.

        Raises:
            ApiError: nothing of that name is loaded, or is loaded for it.
        """
        adapter = self._adapters.get(name)
        if adapter is not None and adapter.loaded_at <= now:
            return adapter.parent, now
        at = self._loaded_at.get(name)
        if at is not None and (at <= now or self.on_demand):
            return name, max(at, now)
        if name in self.names and self.on_demand:
            return name, self.load(name, now)
        raise self.unknown(name)

    def cards(self, now: float, created: int) -> list[dict[str, Any]]:
        """What `GET /v1/models` lists: models, then adapters with their `parent`."""
        return [
            self._card(name, name, None, created) for name, at in self._loaded_at.items() if at <= now
        ] + [
            self._card(one.name, one.path, one.parent, created)
            for one in self._adapters.values()
            if one.loaded_at <= now
        ]

    def loading(self, now: float) -> bool:
        """Whether nothing is loaded yet, but something is on its way."""
        return bool(self._loaded_at) and all(at > now for at in self._loaded_at.values())

    def state(self, now: float) -> dict[str, str]:
        """Model or adapter → `loaded`, `loading` or `unloaded`."""
        times = self._loaded_at | {name: one.loaded_at for name, one in self._adapters.items()}
        found = {name: "loaded" if at <= now else "loading" for name, at in times.items()}
        return dict.fromkeys(self.names, "unloaded") | found

    def _card(self, name: str, root: str, parent: str | None, created: int) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "gtm",
            "root": root,
            "parent": parent,
            "max_model_len": self._profile.max_model_len if parent is None else None,
        }

    def _check_memory(self, name: str, more: int) -> None:
        used, total = self.memory_used(), self._profile.gpu_memory_bytes
        if used + more > total:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"GPU out of memory: `{name}` takes {more} bytes, {total - used} of {total} are free.",
                "out_of_memory",
            )

    def unknown(self, name: str) -> ApiError:
        """404: no such model here."""
        return ApiError(
            HTTPStatus.NOT_FOUND, f"The model `{name[:200]}` does not exist.", "model_not_found", "model"
        )
