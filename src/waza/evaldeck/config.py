"""evaldeck's configuration file, read and written from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import yaml

from waza.errors import Problem, SpecError
from waza.sandbox.yaml12 import read_yaml
from waza.spec.evaldeck_suite import FILES, EvaldeckShape
from waza.spec.places import Place, parse


class EvaldeckConfig(EvaldeckShape):
    """The keys of `evaldeck.yaml`; unknown ones are refused."""

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Return the configuration in a file, or in this folder's `evaldeck.yaml`; all defaults where there is none."""
        file = Path(path) if path is not None else next((Path(name) for name in FILES if Path(name).is_file()), None)
        if file is None:
            return cls()
        try:
            data = read_yaml(file.read_bytes(), str(file))
        except OSError as error:
            raise SpecError(Problem(f"cannot be read: {error.strerror}", str(file))) from None
        config, problems = parse(cls, data, Place(str(file), data))
        if config is None:
            raise SpecError(problems)
        return config

    def save(self, path: str | Path) -> None:
        """Write the configuration as YAML that `load` reads."""
        data = self.model_dump(mode="json", exclude_unset=True)
        Path(path).write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
