"""The controls of trigger tests during a run: prompts are not started once their answers can no longer count."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence

from waza.model import Result, Trial
from waza.runs.triggers import TriggerPrompt, answer_to


class Controls:
    """The results so far of the controls that name a skill outright.

    One that registered in no trial makes the run INVALID, whatever the answers to the other prompts.
    """

    def __init__(
        self, prompts: Collection[TriggerPrompt] = (), trials: int = 1, earlier: Sequence[Result] = ()
    ) -> None:
        self._explicit = {prompt.id: prompt for prompt in prompts if prompt.control == "explicit"}
        known = Counter(result.task_id for result in earlier)
        self._left = {name: max(trials, known[name]) for name in self._explicit}
        self._others = {prompt.id for prompt in prompts if not prompt.control}
        self._known = asyncio.Event()
        self.failed: list[str] = []
        """The skills whose control did not register."""
        self.skipped = 0
        """Trials that were not started because of that."""
        for result in earlier:
            self.record(result)
        self._check()

    def record(self, result: Result) -> None:
        """Count how a trial ended."""
        if (left := self._left.get(result.task_id)) is None:
            return
        prompt = self._explicit[result.task_id]
        if answer_to(result, prompt, {prompt.skill}).did_trigger:
            del self._left[result.task_id]
        else:
            self._left[result.task_id] = left - 1
            self.failed += [prompt.skill] if left == 1 else []
        self._check()

    def _check(self) -> None:
        if self.failed or not self._left:
            self._known.set()

    async def allow(self, trial: Trial) -> bool:
        """Return whether a trial may start; a prompt of trigger tests waits until its controls are decided."""
        if trial.task.id not in self._others:
            return True
        await self._known.wait()
        self.skipped += bool(self.failed)
        return not self.failed

    def release(self) -> None:
        """Let no trial wait any longer: the run is to stop, and controls may never be decided."""
        self._known.set()

    def reason(self, has_tasks: bool) -> str:
        """Return why trials were not started."""
        others = "; the tasks were run all the same" if has_tasks else ""
        fact = f"the control that names '{self.failed[0]}' outright did not register"
        return f"trigger tests are INVALID, so their other prompts were not asked: {fact}{others}"
