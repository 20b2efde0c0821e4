"""pass@k, pass^k and normalized gain: the numbers of the original and of the literature."""

import json
from pathlib import Path

import pytest

from waza.runs.tasks import normalized_gain, pass_at_k, pass_hat_curve, pass_hat_k

DATA = Path(__file__).parents[1] / "data" / "conformance"


HELPERS = [json.loads(line) for line in (DATA / "helpers_repeats.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("line", HELPERS, ids=lambda line: line["id"])
def test_the_original_s_numbers_on_repeats_come_out_the_same(line):
    given = line["input"]
    if line["kind"] == "pass_hat_k":
        found = pass_hat_k(given["successes"], given["trials"], given["k"])
    elif line["kind"] == "pass_hat_curve":
        found = pass_hat_curve([(task["passed"], task["total"]) for task in given])
    else:
        found = normalized_gain(given["pre"], given["post"])
    assert found == pytest.approx(line["expected"], abs=1e-4)


def test_at_least_one_and_all_of_two_when_5_of_8_passed():
    assert pass_at_k(5, 8, 2) == pytest.approx(0.892857, abs=5e-7)
    assert pass_hat_k(5, 8, 2) == pytest.approx(0.357143, abs=5e-7)
