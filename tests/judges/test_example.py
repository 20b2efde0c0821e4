"""The example suite with a scripted judge runs as it stands, offline."""

import json
import re
import shutil


def test_the_judged_example_passes_offline(waza, examples, tmp_path):
    shutil.copytree(examples / "judged", tmp_path / "judged", ignore=shutil.ignore_patterns("runs"))
    assert waza("check", "judged", "--strict").returncode == 0
    done = waza("run", "judged", "--json", env={"http_proxy": "http://127.0.0.1:9"})
    assert done.returncode == 0, done.stderr
    grades = [grade for task in json.loads(done.stdout)["tasks"] for grade in task["runs"][0]["grades"]]
    assert {grade["type"] for grade in grades} == {"text", "prompt", "llm", "llm_comparison"}
    (grounded,) = [grade for grade in grades if grade["name"] == "grounded"]
    assert set(grounded["details"]["rubric"]) == {"name", "version", "scale", "description", "source", "hash"}
    assert grounded["details"]["judge"]["type"] == "scripted"
    (run,) = (tmp_path / "judged" / "runs").glob("2*")
    told = " ".join(waza("show", str(run)).stdout.split())
    assert "rubric groundedness 1.0.0 (grounded): Whether every claim of the response is supported" in told
    live = waza("check", "judged", "--live")
    assert live.returncode == 3 and "no reply left" in live.stdout


def test_the_python_of_the_guide_runs(examples):
    guide = (examples.parent / "docs" / "guide" / "judges.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.S | re.M)
    assert blocks
    for block in blocks:
        exec(compile(block, "judges.md", "exec"), {})
