"""The campaign reports what tests counted and nothing else; the sabotage table fits the code it is about."""

import json
import os
import re
import subprocess
import sys

import pytest

import campaign
import sabotage
from campaign import BEGIN, END, PARTS, count, counted, missed, size


def test_every_sabotage_is_still_in_its_place_and_its_test_exists():
    assert [sentence for fault in sabotage.FAULTS if (sentence := sabotage.misplaced(fault))] == []
    assert len({(fault.file, fault.right, fault.wrong) for fault in sabotage.FAULTS}) == len(sabotage.FAULTS) >= 40


@pytest.mark.parametrize(
    "change",
    [
        {"right": "no such line"},
        {"right": "\n"},
        {"file": "gone.py"},
        {"test": "test_gone.py"},
        {"test": "conftest.py::x"},
    ],
    ids=str,
)
def test_an_entry_that_no_longer_fits_is_reported(change):
    assert sabotage.misplaced(sabotage.FAULTS[0]) == ""
    assert sabotage.misplaced(sabotage.FAULTS[0]._replace(**change))


def test_figures_of_several_tests_and_processes_add_up(tmp_path, monkeypatch):
    place = tmp_path / "figures"
    count("kills", 5)
    monkeypatch.setenv("WAZA_FIGURES", str(place))
    count("kills", 2)
    count("lost", 0)
    script = "import sys; sys.path.insert(0, sys.argv[1]); import campaign; campaign.count('kills', 3)"
    subprocess.run([sys.executable, "-c", script, os.path.dirname(campaign.__file__)], check=True)
    assert counted(place) == {"kills": 5, "lost": 0}
    assert counted(tmp_path / "none") == {}


def test_a_figure_that_nobody_counted_is_a_fault_and_not_a_zero():
    part = PARTS["kills"]
    good = {"kill -9": 10_000, "acknowledged results lost": 0, "results written twice": 0}
    assert list(missed(part, good, "full")) == []
    assert list(missed(part, good | {"kill -9": 20}, "sample")) == []
    assert list(missed(part, good | {"kill -9": 9_999}, "full")) == ["kill -9: 9999, at least 10000 are needed"]
    assert list(missed(part, good | {"acknowledged results lost": 1}, "sample"))
    del good["acknowledged results lost"]
    assert list(missed(part, good, "full")) == ["acknowledged results lost: not counted, must be 0"]
    assert missed(part, {}, "sample")


def test_sizes_follow_the_campaign(monkeypatch):
    monkeypatch.delenv("WAZA_CAMPAIGN", raising=False)
    assert size(1, 2, 3) == 1
    for name, expected in (("sample", 2), ("full", 3), ("other", 1)):
        monkeypatch.setenv("WAZA_CAMPAIGN", name)
        assert size(1, 2, 3) == expected


def test_the_table_quotes_what_was_kept_and_says_what_was_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "FIGURES", tmp_path)
    facts = {"held": True, "faults": [], "tests": {}, "cores": 2, "memory_gb": 4, "python": "3", "kernel": "6"}
    for size_, date, kills in (("full", "2026-01-01T", 11), ("sample", "2026-01-02T", 22), ("full", "2026-01-03T", 33)):
        record = {"part": "kills", "size": size_, "date": date, "figures": {"kill -9": kills}, "seconds": 61}
        (tmp_path / f"{date}.json").write_text(json.dumps(facts | record | {"commit": f"c{kills}"}))
    lines = campaign.table().splitlines()
    assert "kill -9: **33**" in lines[2] and "`c33`" in lines[2] and "full" in lines[2] and "1 min 1 s" in lines[2]
    assert all("not measured" in line for line in lines[3:]) and len(lines) == 2 + len(PARTS)


def test_trust_md_names_every_part_and_commands_that_exist():
    text = campaign.TRUST.read_text()
    table = text[text.index(BEGIN) : text.index(END)]
    assert [name for name in PARTS if f"`make campaign PART={name}`" not in table] == []
    named = set(re.findall(r"tests/[\w/]+\.py", text))
    assert named and [name for name in named if not (campaign.ROOT / name).exists()] == []
    assert set(re.findall(r"PART=(\w+)", text)) <= set(PARTS)
    for file, test in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text):
        assert f"def {test}" in (campaign.ROOT / file).read_text(), test
