"""`waza stats`: the numbers of papers, through the command line."""

import json

import pytest

from waza.cli import run_command


@pytest.fixture
def stats(tmp_path, capsys):
    def call(*words, **files):
        for name, text in files.items():
            (tmp_path / f"{name}.csv").write_text(text)
        code = run_command(["stats", *(str(tmp_path / word) if word.endswith(".csv") else word for word in words)])
        assert code == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return call


def test_the_win_rate_of_alpaca_eval_with_its_standard_error(stats):
    """24.8447 and 1.521 of 805 comparisons: the counts that give both."""
    found = stats("wins", "w.csv", "--json", w="winner,count\nwin,199\ntie,2\nloss,604\n")
    assert (round(found["win_rate"], 4), round(found["standard_error"], 3)) == (24.8447, 1.521)
    assert found["tasks"] == 805


def test_comparisons_of_one_task_are_one_unit(stats):
    found = stats("wins", "w.csv", "--json", w="task,winner\na,win\na,win\nb,loss\nb,tie\n")
    assert (found["tasks"], found["win_rate"]) == (2, 62.5)


def test_agreement_of_two_raters(stats):
    rows = "".join(f"{one},{other}\n" * n for one, other, n in [(1, 1, 118), (1, 0, 5), (0, 1, 2)])
    found = stats("agreement", "a.csv", "--json", a=f"ana,ben\n{rows}")
    assert found["cohen_kappa"] == pytest.approx(-0.023391812865497075)
    assert found["gwet_ac1"] == pytest.approx(0.9409, abs=5e-4)
    assert found["linear_kappa"] == pytest.approx(found["cohen_kappa"]), "with two labels all weights are the same"
    assert found["cohen_kappa_ci"][0] < found["cohen_kappa"] < found["cohen_kappa_ci"][1]


def test_agreement_of_three_raters_has_fleiss_kappa(stats):
    found = stats("agreement", "a.csv", "--json", a="a,b,c\nx,x,x\nx,x,y\ny,y,y\ny,y,x\n")
    assert found["fleiss_kappa"] == pytest.approx(1 / 3)
    assert "cohen_kappa" not in found


def test_corrected_rates_of_counts(stats):
    found = stats("corrected", "--counts", "16,4,2,7", "--passes", "21", "--outputs", "31", "--json")
    judge, people, on_labelled = 21 / 31, 20 / 29, 18 / 29
    assert found["ppi"] == pytest.approx(judge + people - on_labelled)
    assert found["rogan_gladen"] == pytest.approx((judge + 7 / 9 - 1) / (0.8 + 7 / 9 - 1))
    assert found["ppi++_standard_error"] <= found["ppi_standard_error"]


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["wins", "no.csv"], "cannot be read"),
        (["corrected", "--counts", "1,2", "--passes", "1", "--outputs", "2"], "--counts has four numbers"),
    ],
)
def test_a_wrong_call_is_refused(words, fact, capsys):
    assert run_command(["stats", *words]) == 2
    assert fact in capsys.readouterr().err
