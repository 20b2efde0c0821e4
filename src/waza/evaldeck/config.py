"""evaldeck's configuration file, read and written from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import yaml

from waza.errors import SpecError
from waza.suites.evaldeck import EvaldeckShape
from waza.suites.load import EVALDECK_FILES
from waza.suites.positions import Checked, parse, read_file


class EvaldeckConfig(EvaldeckShape, Checked):
    """The keys of `evaldeck.yaml`; unknown ones are refused."""

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Return the configuration in a file, or in this folder's `evaldeck.yaml`; all defaults where there is none."""
        here = next((Path(name) for name in EVALDECK_FILES if Path(name).is_file()), None)
        file = Path(path) if path is not None else here
        if file is None:
            return cls()
        place = read_file(file)
        config, problems = parse(cls, place.content, place)
        if config is None:
            raise SpecError(problems)
        return config

    @property
    def judge_model(self) -> str | None:
        """The model that judges, where one is named."""
        return self.graders.settings.get("model")

    def save(self, path: str | Path) -> None:
        """Write the configuration as YAML that `load` reads."""
        data = self.model_dump(mode="json", exclude_unset=True)
        Path(path).write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
