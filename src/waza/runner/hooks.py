"""Commands around a run and its tasks, split like a shell line and started without a shell."""

from __future__ import annotations

from collections.abc import Mapping

from waza.errors import EngineError
from waza.files.paths import SpecFolder
from waza.process.run_program import base_environment, run_process
from waza.suites.load import where_and_what
from waza.suites.shapes import HookShape

TIMEOUT_S = 600


async def run_hooks(hooks: list[HookShape], folder: SpecFolder, environment: Mapping[str, str]) -> list[str]:
    """Run the commands one after the other and return the failures of those that may fail.

    Raises EngineError for a command that failed and has `error_on_fail`.
    """
    remarks = []
    for hook in hooks:
        if trouble := await _run_hook(hook, folder, environment):
            if hook.error_on_fail:
                raise EngineError(trouble)
            remarks.append(trouble)
    return remarks


async def _run_hook(hook: HookShape, folder: SpecFolder, environment: Mapping[str, str]) -> str:
    """Run one command and return a sentence about its failure, or nothing."""
    try:
        cwd, argv = where_and_what(hook, folder)
        finished = await run_process(argv, cwd=cwd, env=base_environment(environment, home=None), timeout_s=TIMEOUT_S)
    except ValueError as error:
        return f"hook '{hook.command}': {error}"
    if finished.exit_code in hook.exit_codes:
        return ""
    fact = finished.trouble or f"exit code {finished.exit_code}"
    stderr = finished.stderr.text.strip()[-300:]
    return f"hook '{hook.command}': {fact}" + (f": {stderr}" if stderr else "")
