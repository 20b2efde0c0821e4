"""The members of a jury, from what `judges:` of a grader says: models of the suite's judge, or judges of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from waza.errors import did_you_mean, validation_fact
from waza.judges._base import JUDGES, WRAPPER, Judge
from waza.sandbox.folders import SpecFolder


class Juror(NamedTuple):
    """One member of a jury."""

    name: str
    model: str = ""
    """The model to ask; the judge's own if empty."""
    judge: Judge | None = None
    """Whom to ask; the suite's judge if None."""

    @property
    def address(self) -> str:
        """Where its model is served, if that is said here; empty for the vendor's own and for the suite's judge."""
        return self.judge.base_url if self.judge else ""

    def asked(self, judge: Any) -> Any:
        """Return whom to ask, where `judge` is the suite's; a judge of one's own keeps its verdicts where that does."""
        if self.judge is None:
            return judge
        return self.judge.model_copy(update={"cache": getattr(judge, "cache", None)})


def jurors_from(entries: Sequence[str | Mapping[str, Any]], folder: SpecFolder) -> list[Juror]:
    """Return the jurors meant by `judges:`; raise ValueError with what is wrong with them."""
    if len(entries) == 1:
        raise ValueError("one judge is no jury; name several in 'judges', or the one in 'model'")
    for place, entry in enumerate(entries):
        if entry in entries[:place]:
            raise ValueError(f"judges[{place}] stands there before; it would vote twice")
    made = [_juror(entry, place, folder) for place, entry in enumerate(entries)]
    seen: Counter[str] = Counter()
    named = []
    for juror in made:
        seen[juror.name] += 1
        named.append(juror if seen[juror.name] == 1 else juror._replace(name=f"{juror.name}#{seen[juror.name]}"))
    return named


def _juror(entry: str | Mapping[str, Any], place: int, folder: SpecFolder) -> Juror:
    here = f"judges[{place}]"
    if isinstance(entry, str):
        if not entry.strip():
            raise ValueError(f"{here} is blank; name a model")
        return Juror(entry, entry)
    kind = entry.get("type") or ("anthropic" if str(entry.get("model", "")).startswith("claude") else "openai")
    if not isinstance(kind, str) or not JUDGES.knows(kind):
        raise ValueError(f"{here}.type: unknown judge '{kind}'; {did_you_mean(str(kind), JUDGES.names())}")
    cls: type[Judge] = JUDGES.load(kind)
    own = {key: value for key, value in entry.items() if key != "type"}
    known = [key for key in cls.model_fields if key not in WRAPPER]
    if unknown := next((key for key in own if key not in known), None):
        raise ValueError(f"{here}: unknown key '{unknown}'; {did_you_mean(unknown, known)}")
    try:
        judge = cls.model_validate(own | {"folder": folder})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([here, *(str(part) for part in first["loc"])])
        raise ValueError(f"{where}: {validation_fact(first)}") from None
    if judge.needs_model and not judge.model:
        raise ValueError(f"{here}: this judge has no model; name one in its 'model'")
    return Juror(judge.model or kind, judge.model, judge)
