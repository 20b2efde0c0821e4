"""What people write in a spec, as typed keys: the base of grader options, engine options and file shapes."""

from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class Options(BaseModel):
    """Typed keys of a spec: unknown ones are refused, nothing is coerced, nothing changes later."""

    # Built when first used: a command loads dozens of these and validates with a few.
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, protected_namespaces=(), populate_by_name=True, defer_build=True
    )


class ZeroMeans:
    """In `Annotated`: a 0 in the file is this value, as `timeout: 0` is the default timeout."""

    def __init__(self, meaning: float | None) -> None:
        self.meaning = meaning

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema that puts the meaning in place of a 0, before anything is checked."""
        return core_schema.no_info_before_validator_function(self._meant, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return what else is accepted, and 0."""
        return {"anyOf": [handler(schema), {"const": 0}]}

    def _meant(self, value: Any) -> Any:
        return self.meaning if type(value) in (int, float) and value == 0 else value
