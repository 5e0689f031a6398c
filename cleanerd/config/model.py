"""The models of settings and the names of their keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


def key_of(field_name: str) -> str:
    """The key of a model's field: the field's name with dots."""
    return field_name.replace("_", ".")


class SettingsModel(BaseModel):
    """A model whose fields are keys; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=key_of)
