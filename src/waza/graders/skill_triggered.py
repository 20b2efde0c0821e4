"""The `skill_triggered` grader: one skill is, or is not, invoked (`expected.should_trigger`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.errors import Undecidable
from waza.graders.base import Grader, SkillName
from waza.model import Check, Trace
from waza.untrusted.patterns import fits_name


class SkillTriggeredGrader(Grader):
    """Check that a skill was invoked, or that it was not.

    ```yaml
    - type: skill_triggered
      name: stays_silent
      config:
        skill: azure-deploy
        should_trigger: false
    ```
    """

    checks_behavior: ClassVar[bool] = True
    checks_skill_use: ClassVar[bool] = True

    skill: SkillName
    """The skill's name, exact or a glob (`azure-*`)."""
    should_trigger: bool = True
    """Whether the skill must be invoked, or must not be."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one claim."""
        if trace.skill_invocations is None:
            raise Undecidable("skill use was not recorded: this engine cannot observe it")
        invoked = [invocation.name for invocation in trace.skill_invocations]
        claim = f"skill {self.skill} is {'' if self.should_trigger else 'not '}invoked"
        if any(fits_name(self.skill, name) for name in invoked) == self.should_trigger:
            yield Check(True, claim)
        else:
            yield Check(False, claim, f"not so: {claim}", claim, invoked)
