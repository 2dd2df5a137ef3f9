"""What the screen shows of a run."""

from isosphere.train.screen import Screen

NORMS = {"norm_mean": 0.335, "norm_variance": 0.01}


def test_an_evaluation_without_a_metric_leaves_no_hole(capsys):
    with Screen("run", steps=20, done=0, shown=True) as screen:
        screen.measured(0, "norm_mean", NORMS)
        screen.measured(20, "recall@1", {"recall@1": 0.05, "map@r": 0.02} | NORMS)
        assert screen.progress.tasks[0].fields["note"] == "R@1  5.00%"
        assert screen.progress.tasks[0].completed == 20
    said = capsys.readouterr().err
    assert "step      0  norm 0.335 (variance 0.01)" in said
    assert "step     20  R@1  5.00%  MAP@R  2.00%  norm 0.335" in said


def test_a_warning_keeps_its_brackets_and_a_hidden_screen_prints_nothing(capsys):
    with Screen("run [1]", steps=20, done=5, shown=True) as screen:
        screen.warning(7, "norms [of class 3] spread")
    assert "step      7  norms [of class 3] spread" in capsys.readouterr().err
    with Screen("run", steps=20, done=0, shown=False) as screen:
        screen.warning(7, "norms spread")
        screen.measured(7, "norm_mean", NORMS)
    assert capsys.readouterr() == ("", "")
