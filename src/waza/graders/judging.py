"""What graders that ask a judge share: their options, what the judge sees, and how its verdict becomes a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import msgspec
from msgspec.structs import replace
from pydantic import Field, PrivateAttr, field_validator, model_validator

from waza.errors import JudgeError, Undecidable
from waza.graders._jury import CRITERIA, Jury, criteria_finding, jury_finding, measured_weights
from waza.graders.base import SOURCE, Finding, Grader, Text, files_of
from waza.judges.asking import JudgeAnswer, Question, Unanswered, answer, judged, wait_for_judge
from waza.judges.base import Effort, Reply, Request
from waza.judges.fencing import Data
from waza.judges.jury import Juror, Rule, jurors_from
from waza.judges.quotes import Quote, absent_quotes, checked_quotes, quotes_of
from waza.judges.rubrics import Rubric, find_rubric
from waza.judges.verdict_tools import (
    NO_REASON,
    ONE_TO_FIVE,
    PASS_FAIL,
    OnCriterion,
    on_each,
    reason_or_mark,
    same_words,
)
from waza.model import JSON, Check, Trace
from waza.runs.verdicts import question_of

Evidence = Literal["tool_events", "source_context", "files"]
MAX_FILES_BYTES = 200_000
"""How much of the workspace is shown to a judge; a judge that sees a part of it would judge a part of it."""
MAX_REFERENCE = 100
"""The longest `rubric` in one line that is taken for a name or a path, unless a file is called so."""
_SILENT = "<no response content>"
_EACH = "Judge each criterion by itself and give exactly one verdict on each, with its number."


class JudgedGrader(Grader):
    """Let a judge decide."""

    asks_judge: ClassVar[bool] = True
    needs_one_of: ClassVar[tuple[str, ...]] = ("prompt", "rubric", "criteria")
    criteria_heading: ClassVar[str] = "Judge the candidate output by the criteria below."
    """The instruction above `criteria`, where there is neither a prompt nor a rubric."""

    prompt: str = ""
    """The instruction to the judge; it overrides the text of a rubric."""
    rubric: str = ""
    """A rubric: the name of a built-in one (`waza rubric list`), or the path of a Markdown file.

    Several lines, or more than 100 characters with spaces that name no file, are the instruction itself."""
    criteria: list[Text] = []
    """What the output is judged by, point for point: the judge gives one verdict on each, and each is a check.

    A reply that leaves one out is no verdict."""
    model: str = ""
    """The model that judges; the judge's own if left out."""
    reasoning_effort: Effort | None = None
    """How hard the judge's model thinks."""
    needs: list[Evidence] = []
    """What the judge gets besides task and output: `tool_events`, `source_context`, `files`."""
    output_budget: Annotated[int, Field(ge=200)] = 100_000
    """The most characters of the output, and of the tool calls, that the judge is shown: their beginning and end.

    The judge and the reports say what was left out."""
    judges: list[Annotated[str, Field(min_length=1)] | dict[str, Any]] = []
    """A jury instead of one judge: models of the suite's judge, or settings as in `judge:`; asked in this order."""
    vote: Rule = "majority"
    """How a jury decides: `majority`, `all`, `any`, or the `mean` of its scores. It stops when that is settled."""
    ask_everyone: bool = False
    """Ask every member of a jury, though its verdict is settled: `waza calibrate` needs that to measure each."""

    _rubric: Rubric | None = PrivateAttr(default=None)
    _jury: Jury | None = PrivateAttr(default=None)

    @field_validator("rubric")
    @classmethod
    def _trimmed(cls, rubric: str) -> str:
        return rubric.strip() or rubric

    @field_validator("criteria")
    @classmethod
    def _differ(cls, criteria: list[str]) -> list[str]:
        first_places: dict[str, int] = {}
        for place, text in enumerate(criteria):
            if not text.strip():
                raise ValueError(f"criteria[{place}] is blank; say what is judged, or leave it out")
            if (first := first_places.setdefault(same_words(text), place)) != place:
                raise ValueError(f"criteria[{place}] is the same as criteria[{first}]; keep one of them")
        return [text.strip() for text in criteria]

    @model_validator(mode="after")
    def _has_question(self) -> Self:
        if self.prompt and not self.prompt.strip():
            raise ValueError("the prompt is blank; say what the judge should check")
        if self.rubric and not self._is_rubric_text():
            self._rubric = find_rubric(self.rubric, self.folder)
        if self.prompt and self.rubric and self._rubric is None:
            raise ValueError("'prompt' and the text in 'rubric' both say what is judged; keep one of them")
        if not self.judges and (idle := {"vote", "ask_everyone"} & self.model_fields_set):
            raise ValueError(f"'{min(idle)}' goes with a jury; name several judges in 'judges', or leave it out")
        if self.judges:
            self._jury = self._build_jury()
        return self

    def _is_rubric_text(self) -> bool:
        """Return whether `rubric` is an instruction to the judge, not the name or path of a rubric."""
        text = self.rubric
        if "\n" in text or "\r" in text:
            return True
        if len(text) <= MAX_REFERENCE or not any(letter.isspace() for letter in text) or text.endswith(".md"):
            return False
        try:
            self.folder.find(text)
        except ValueError:
            return True
        return False

    def _build_jury(self) -> Jury:
        """Return the jury; raise ValueError with what is wrong with it."""
        if self.model:
            raise ValueError("'model' and 'judges' are both given; keep one of them")
        pass_at = self.pass_at
        if self.vote == "mean" and pass_at is None:
            raise ValueError("there is no mean of pass and fail; use vote: majority, or a 1-5 rubric")
        jurors = jurors_from(self.judges, self.folder)
        worths = measured_weights(jurors, self.folder.root, self._rubric_hash, self.question_name)
        everyone = self.ask_everyone or self.vote == "mean"
        weights = worths if self.vote == "majority" else []
        return Jury(jurors, self.vote, pass_at or 0.0, everyone, weights, self.criteria)

    @property
    def pass_at(self) -> float | None:
        """The lowest score that passes, from 0 to 1; None where a verdict is pass or fail."""
        return None

    @property
    def jurors(self) -> list[Juror]:
        """The judges this grader asks: its jury, or the one judge."""
        return list(self._jury.jurors) if self._jury else [Juror(self.model, self.model)]

    @property
    def rubric_in_use(self) -> Rubric | None:
        """The rubric that `rubric` names."""
        return self._rubric

    @property
    def question_name(self) -> str:
        """A hash of the question, its scale and its evidence; empty where a rubric alone is the question."""
        if self._rubric and not self.prompt and not self.criteria:
            return ""
        return question_of(self.type_name(), self.question_text, str(self.pass_at), *sorted(self.needs))

    @property
    def _rubric_hash(self) -> str:
        return self._rubric.hash if self._rubric else ""

    def asks(self) -> list[str] | None:
        """Return the hash of the rubric in use, if there is one, and the weights of a jury's votes."""
        weights = [f"{one.passing:.6f}/{one.failing:.6f}" for one in self._jury.worths] if self._jury else []
        return [*([self._rubric_hash] if self._rubric else []), *weights]

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the judge's verdict; blocks the caller."""
        return wait_for_judge(self._decide(trace, judge))

    async def aevaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the judge's verdict."""
        return await judged(self._decide(trace, judge))

    async def consult(self, trace: Trace, judge: Any) -> Finding:
        """Ask the judge and return what its verdict means. Raises Unanswered."""
        raise NotImplementedError(f"{type(self).__name__} asks no judge")

    async def _decide(self, trace: Trace, judge: Any) -> Finding:
        if self._jury is None:
            return await self._ask_judge(trace, judge)

        async def ask(juror: Juror) -> Finding:
            seat = self.model_copy(update={"model": juror.model})
            return await seat._ask_judge(trace, juror.judge_or(judge))

        return await jury_finding(self._jury, ask)

    async def _ask_judge(self, trace: Trace, judge: Any) -> Finding:
        """Return one judge's verdict; no verdict is an error."""
        if judge is None:
            raise Undecidable("no judge: name one in `judge:` of .waza.yaml or in config.judge, or hand one to grade()")
        try:
            return await self.consult(trace, judge)
        except Unanswered as error:
            return Finding("error", 0.0, str(error), details=self.question_details() | {"judge": error.judge})

    def question(self, parts: list[str | Data]) -> Question:
        """Return a question for this grader's model."""
        return Question(parts, self.model, self.reasoning_effort, self._rubric_hash, self.folder.root.name)

    @property
    def question_text(self) -> str:
        """The instruction to the judge, with numbered criteria; empty where there is none."""
        if self.prompt.strip():
            instruction = self.prompt.strip()
        else:
            instruction = self._rubric.body if self._rubric else self.rubric
        if not self.criteria:
            return instruction
        numbered = [f"{number}. " + text.replace("\n", "\n   ") for number, text in enumerate(self.criteria, 1)]
        return "\n\n".join([instruction or self.criteria_heading, "## Criteria", "\n".join(numbered), _EACH])

    def evidence(self, trace: Trace) -> list[str | Data]:
        """Return what is shown to the judge: the task, the source, what is needed, and the output.

        Raises Undecidable where something needed was not recorded. A trace that was not made by a run
        and has no source is judged without one.
        """
        needs = {*self.needs, *(self._rubric.needs if self._rubric else ())}
        parts: list[str | Data] = ["---"]
        if trace.input:
            parts.append(Data("Task input", trace.input))
        source = _source(trace)
        if "source_context" in needs and not source and SOURCE in trace.extra:
            raise Undecidable("the judge needs a source context; give the task one as inputs.context.source")
        if source or "source_context" in needs:
            parts.append(Data("Source context", source or "(none was given)"))
        if "tool_events" in needs:
            parts.append(Data("Tool calls", _calls(trace), self.output_budget))
        if "files" in needs:
            parts.append(Data("Files", _files(trace)))
        return [*parts, Data("Candidate output", trace.output, self.output_budget)]

    def question_details(self) -> dict[str, JSON]:
        """Return `details.question`, where a prompt asks it, and `details.rubric`, where a rubric is in use."""
        question: dict[str, JSON] = {"question": self.question_name} if self.question_name else {}
        if self._rubric is None:
            return question
        rubric = self._rubric
        facts: dict[str, JSON] = {"name": rubric.name, "version": rubric.version, "scale": rubric.scale}
        facts |= {"description": rubric.description, "source": rubric.source, "hash": rubric.hash}
        return question | {"rubric": facts}

    async def ask_pass_fail(self, judge: Any, parts: list[str | Data]) -> Finding:
        """Return the finding of calls that pass and calls that fail: the share that pass, all of them to pass."""
        if self.criteria:
            return await self._ask_each(judge, parts, None)
        got = await answer(judge, self.question(parts), PASS_FAIL)
        shown = shown_to_judge(parts, got.verdict.quotes)
        passes, failures = got.verdict.passes, got.verdict.failures
        checks = [Check(True, text) for text in passes]
        checks += [Check(False, text, text) for text in failures]
        feedback = "; ".join(failures) or "All prompts passed" + (f" ({NO_REASON})" if got.verdict.lacks_reason else "")
        found: dict[str, JSON] = {"passes": _listed("pass", passes), "failures": _listed("fail", failures)}
        details = self._details(got, found | shown.details)
        score = len(passes) / len(checks)
        return Finding("failed" if failures else "passed", score, feedback + shown.remark, checks, details)

    async def ask_score(self, judge: Any, parts: list[str | Data], pass_at: float) -> Finding:
        """Return the finding of a score from 1 to 5, which passes from `pass_at` on the scale from 0 to 1."""
        if self.criteria:
            return await self._ask_each(judge, parts, pass_at)
        got = await answer(judge, self.question(parts), ONE_TO_FIVE)
        shown = shown_to_judge(parts, quotes_of(got.verdict.evidence))
        score = (got.verdict.score - 1) / 4
        passed = score >= pass_at - 1e-9
        verdict = f"{got.verdict.score} of 5: {reason_or_mark(got.verdict.reason)}"
        check = Check(passed, f"the judge gives at least {pass_at * 4 + 1:g} of 5", "" if passed else verdict)
        details = self._details(got, {"score": got.verdict.score, "reason": got.verdict.reason} | shown.details)
        return Finding("passed" if passed else "failed", score, verdict + shown.remark, [check], details)

    async def _ask_each(self, judge: Any, parts: list[str | Data], pass_at: float | None) -> Finding:
        """Return the finding of one verdict on each criterion, or one score where there is a `pass_at`.

        The score is the mean over the criteria, and one that is not met decides.
        """
        got = await answer(judge, self.question(parts), on_each(self.criteria, is_scored=pass_at is not None))
        each = [_criterion_result(text, one, pass_at) for text, one in zip(self.criteria, got.verdict, strict=True)]
        shown = shown_to_judge(parts, [quote for one in got.verdict for quote in one.quotes])
        details = self._details(got, {CRITERIA: [_as_data(one) for one in each]} | shown.details)
        score = sum(one.score for one in each) / len(each)
        finding = criteria_finding([one.check for one in each], score, details)
        return replace(finding, feedback=finding.feedback + shown.remark)

    def _details(self, got: JudgeAnswer[Any], found: dict[str, JSON]) -> dict[str, JSON]:
        return {"response": got.text.strip() or _SILENT} | found | self.question_details() | {"judge": got.judge}


class _RequestRecorder:
    """In place of a judge: keeps the requests, and answers none."""

    cache = None
    is_cacheable = False
    model = ""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def ask(self, request: Request) -> Reply:
        """Keep the request."""
        self.requests.append(request)
        raise JudgeError("the request is shown, not sent")


def first_request(grader: JudgedGrader, trace: Trace) -> Request:
    """Return the first request that a grader sends to its judge about a trace; raise Undecidable if it sends none."""
    recorder = _RequestRecorder()
    grade = grader.grade(trace, judge=recorder)
    if not recorder.requests:
        raise Undecidable(grade.feedback)
    return recorder.requests[0]


class Shown(NamedTuple):
    """What is known of the material a judge was shown: quotes from it, and what was left out."""

    details: dict[str, JSON]
    """`evidence` and `left_out`, where there are any."""
    remark: str
    """What a reader of the verdict must know about it; empty where there is nothing."""

    @property
    def evidence(self) -> list[dict[str, JSON]]:
        """The quotes, each with its place."""
        quotes: list[dict[str, JSON]] = self.details.get("evidence", [])
        return quotes


def shown_to_judge(parts: Sequence[str | Data], quotes: Sequence[Quote]) -> Shown:
    """Return what a verdict on these parts rests on."""
    evidence = checked_quotes(quotes, parts)
    cut = [part for part in parts if isinstance(part, Data) and part.left_out]
    left_out: list[JSON] = [{"part": one.title, "characters": one.left_out, "of": len(one.text)} for one in cut]
    remarks = [f"{one.left_out:,} of {len(one.text):,} characters of {one.title} were left out" for one in cut]
    remarks += [absent] if (absent := absent_quotes(evidence)) else []
    details: dict[str, JSON] = {"evidence": evidence, "left_out": left_out}
    return Shown({key: value for key, value in details.items() if value}, "".join(f" ({one})" for one in remarks))


class _CriterionResult(NamedTuple):
    """A criterion with its verdict."""

    check: Check
    score: float
    """From 0 to 1."""
    reason: str


def _criterion_result(criterion: str, one: OnCriterion, pass_at: float | None) -> _CriterionResult:
    reason = reason_or_mark(one.reason)
    if pass_at is None:
        met = one.verdict is True
        check = Check(True, criterion, actual=reason) if met else Check(False, criterion, f"{criterion}: {reason}")
        return _CriterionResult(check, float(met), reason)
    score = (one.verdict - 1) / 4
    met, verdict, least = score >= pass_at - 1e-9, f"{one.verdict} of 5: {reason}", f"at least {pass_at * 4 + 1:g} of 5"
    return _CriterionResult(
        Check(met, criterion, "" if met else f"{criterion}: {verdict}", least, verdict), score, reason
    )


def _as_data(one: _CriterionResult) -> dict[str, JSON]:
    return {"criterion": one.check.claim, "passed": one.check.ok, "score": one.score, "reason": one.reason}


def _listed(verdict: str, texts: list[str]) -> list[str]:
    return [f"{verdict}: {text}" if text else verdict for text in texts]


def _source(trace: Trace) -> str:
    source = trace.extra.get(SOURCE)
    return source if isinstance(source, str) else ""


def _calls(trace: Trace) -> str:
    """Return the tool calls, one a line; raise Undecidable where they were not recorded."""
    if trace.tool_events is None and SOURCE in trace.extra:
        raise Undecidable("the judge needs the tool calls, and they were not recorded: this engine cannot observe them")
    if trace.tool_events is None:
        return "(tool calls were not recorded)"
    lines = []
    for number, event in enumerate(trace.tool_events, 1):
        call = {"call": number, "tool": event.tool_name, "args": event.args, "result": event.result}
        call |= {"success": event.success} | ({"error": event.error} if event.error else {})
        lines.append(msgspec.json.encode(call).decode())
    return "\n".join(lines) or "(no tool was called)"


def _files(trace: Trace) -> str:
    """Return the files the agent left; raise Undecidable where they cannot be read or are too much for a judge."""
    files, shown, size = files_of(trace), [], 0
    try:
        paths = list(files.paths())
    except OSError as error:
        raise Undecidable(f"the judge needs the files, and not all can be read: {error.strerror or error}") from None
    for path in paths:
        try:
            content = files.read(f"./{path}")
        except OSError as error:
            raise Undecidable(f"the judge needs the files, and {path} {error.strerror or error}") from None
        size += len(content)
        if size > MAX_FILES_BYTES:
            raise Undecidable(f"the workspace has more than {MAX_FILES_BYTES:,} bytes, too much for a judge")
        text = f"({len(content)} bytes that are no text)" if b"\0" in content else content.decode("utf-8", "replace")
        shown.append(f"=== {path}\n{text}")
    return "\n".join(shown) or "(no files)"
