"""Conformance cases and rooms for the graders of files, JSON and programs."""

import json
from pathlib import Path

import pytest

import waza

DATA = Path(__file__).parent.parent / "data" / "conformance"


def lay(root, files):
    """Write files, given as text by path."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogateescape"))


def cases(kind):
    """The conformance cases of one grader type, ready for parametrize."""
    texts = [(DATA / name).read_text(encoding="utf-8") for name in ("graders_files.jsonl", "graders_rules.jsonl")]
    found = [json.loads(line) for text in texts for line in text.split("\n") if line]
    return [pytest.param(case, id=case["id"]) for case in found if case["grader"]["type"] == kind]


def check_case(case, case_folders):
    """Replay a conformance case in an empty folder and hold it to what it expects."""
    spec, work = case_folders / "spec", case_folders / "work"
    spec.mkdir()
    lay(spec, case.get("spec_files", {}))
    if "workspace_files" in case:
        work.mkdir()
        lay(work, case["workspace_files"])
    want = case["expect"]
    try:
        grader = waza.load_grader(case["grader"], base_dir=spec)
    except waza.SpecError as error:
        allowed = ("refused",) if "why" in case else ("refused", "error")
        assert want["status"] in allowed, str(error)
        return
    grade = grader.grade(waza.Trace.from_json(case["trace"]), workspace=work if work.exists() else None)
    assert grade.status == want["status"], grade.feedback
    if grade.status != "error" and "score" in want:
        assert grade.score == pytest.approx(want["score"], abs=1e-9)
    for name, content in case.get("after_spec_files", {}).items():
        assert (spec / name).read_bytes() == content.encode()


class CaseFolders:
    """A project's folder and a workspace, for one grader."""

    def __init__(self, root):
        self.spec = root / "spec"
        self.work = root / "work"
        self.spec.mkdir()
        self.work.mkdir()

    def load(self, kind, **config):
        return waza.load_grader({"type": kind, "name": "g", "config": config}, base_dir=self.spec)

    def grade(self, kind, output="", **config):
        return self.load(kind, **config).grade(waza.Trace(input="", output=output), workspace=self.work)

    def refusal(self, kind, **config):
        """Why a grader is refused."""
        with pytest.raises(waza.SpecError) as refused:
            self.load(kind, **config)
        return str(refused.value)
