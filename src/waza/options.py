"""What people write in a spec, as typed keys: the base of grader options, engine options and file shapes."""

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Typed keys of a spec: unknown ones are refused, nothing is coerced, nothing changes later."""

    # Built when first used: a command loads dozens of these and validates with a few.
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, protected_namespaces=(), populate_by_name=True, defer_build=True
    )
