"""The `json_schema` grader: the output is JSON of a given shape."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from waza.errors import Undecidable
from waza.graders.base import Grader, Text, content_hash
from waza.graders.text import excerpt
from waza.model import JSON, Check, Trace
from waza.untrusted.json import MAX_JSON_CHARS, extract_json, parse_json
from waza.untrusted.json_schema import Schema, compile_schema, refuse_slips, unknown_keywords

_FITS = Check(True, "the output is JSON that fits the schema")


class JsonSchemaGrader(Grader):
    """Check that the output is JSON and fits a JSON Schema.

    JSON is read strictly; a code fence around it is not JSON, unless `extract_json` is on. The dialect is 2020-12 if
    `$schema` names no other; up to draft-07 formats are asserted, `uuid` and `duration` too. Nothing is ever fetched
    for a `$ref`. The schema is read when the spec is loaded; a word one slip away from a keyword is refused, any other
    that the dialect does not know is a note, and one of your own is written `x-…`.

    ```yaml
    - type: json_schema
      name: api_response
      config:
        schema:
          type: object
          required: [status, data]
          properties:
            status: {type: string, enum: [success, error]}
            data: {type: object}
    ```
    """

    all_passed: ClassVar[str] = "Output matches JSON schema"

    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    """The JSON Schema itself."""
    schema_file: Text | None = None
    """A file of the project with the JSON Schema."""
    extract_json: bool = False
    """Accept text around the JSON; exactly one object or array must be in the output."""

    _digest: str = PrivateAttr(default="")
    _unknown: list[str] = PrivateAttr(default_factory=list)

    @field_validator("schema_")
    @classmethod
    def _compiles(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            compile_schema(schema)
            refuse_slips(schema)
        return schema

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if (self.schema_ is None) == (self.schema_file is None):
            both = self.schema_ is not None
            raise ValueError("give schema or schema_file, not both" if both else "give schema or schema_file")
        self._compiled  # noqa: B018  an invalid schema is reported when the spec is loaded
        return self

    @cached_property
    def _compiled(self) -> Schema:
        if self.schema_file is None:
            return self._checked(self.schema_ or {})
        place = self.folder.find(self.schema_file)
        try:
            content = place.read_bytes()
            self._digest = content_hash(content)
            return self._checked(parse_json(content.decode("utf-8")))
        except (OSError, ValueError) as error:
            raise ValueError(f"schema_file '{self.schema_file}': {error}") from None

    def _checked(self, schema: dict[str, Any] | bool) -> Schema:
        compiled = compile_schema(schema)
        refuse_slips(schema)
        self._unknown = [f"{place}/{word}" for place, word in unknown_keywords(schema)]
        return compiled

    @property
    def unknown_keywords(self) -> list[str]:
        """The words in the schema, as pointers, that its dialect does not know: they check nothing."""
        return self._unknown

    def reads(self) -> dict[str, str]:
        """Return the file of the schema, if there is one."""
        return {} if self.schema_file is None else {self.schema_file: self._digest}

    def checks(self, trace: Trace) -> list[Check]:
        """Return one check: the output is JSON that fits the schema."""
        if len(trace.output) > MAX_JSON_CHARS:
            raise Undecidable(f"the output has more than {MAX_JSON_CHARS} characters; it was not read as JSON")
        try:
            value = extract_json(trace.output) if self.extract_json else parse_json(trace.output)
        except ValueError as error:
            stem = "must contain exactly one JSON object or array" if self.extract_json else "is not valid JSON"
            return [Check(False, _FITS.claim, f"Output {stem}: {error}", "JSON", excerpt(trace.output))]
        problems = self._compiled.problems(value)
        if not problems:
            return [_FITS]
        return [Check(False, _FITS.claim, f"Schema validation failed: {'; '.join(problems)}", actual=problems)]

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return why the output is not JSON, or where it does not fit."""
        if checks[0].ok:
            return {}
        problems = checks[0].actual
        return {"failures": problems} if isinstance(problems, list) else {"error": checks[0].failure}
