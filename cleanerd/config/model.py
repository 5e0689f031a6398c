"""How a model of settings names its keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


def key_of(field_name: str) -> str:
    """The key of a model's field: the same words with dots."""
    return field_name.replace("_", ".")


class SettingsModel(BaseModel):
    """A model whose fields are keys; it takes no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=key_of)
