"""Votes of the nearest against `knn_accuracy` and loops; wrong labels that were planted are found."""

import numpy as np
import pytest
import torch

from blobs import blobs, made
from isosphere import gallery
from isosphere.errors import BadArgument
from isosphere.gallery.votes import TEMPERATURE, checked, classify, label_issues
from isosphere.metrics import knn_accuracy


def test_votes_are_those_of_a_loop_and_right_as_often_as_in_the_metric(tmp_path):
    rows, labels = blobs(8, 12, 0.35)
    found = made(tmp_path / "g", rows[::2], labels[::2])
    queries, truth = rows[1::2], labels[1::2]
    votes = classify(found, queries, k=7)
    for number, query in enumerate(torch.nn.functional.normalize(queries)):
        cosines = found.vectors[:].float() @ query
        near = cosines.argsort(descending=True)[:7].tolist()
        totals: dict[str, float] = {}
        for row in near:
            weight = float(((cosines[row] - cosines[near[0]]) / TEMPERATURE).exp())
            totals[found.labels[row]] = totals.get(found.labels[row], 0) + weight
        best = max(totals, key=totals.get)
        assert found.classes[votes.winners[number]] == best and votes.rows[number] == near[0]
        assert votes.shares[number] == pytest.approx(totals[best] / sum(totals.values()), abs=1e-4)
    right = np.mean([found.classes[winner] == label for winner, label in zip(votes.winners, truth, strict=True)])
    codes = [found.classes.index(label) for label in truth]
    wanted = knn_accuracy(found.vectors[:].float(), found.codes, queries, codes, k=7, temperature=TEMPERATURE)
    assert 0.5 < right < 1 and right == pytest.approx(wanted["top1"])


def test_the_check_leaves_each_image_out(tmp_path):
    rows = torch.eye(6).repeat_interleave(2, 0)  # pairs: the nearest other one is the partner
    labels = [label for pair in range(6) for label in (("a", "a") if pair < 4 else ("a", "b"))]
    assert checked(made(tmp_path / "g", rows, labels), k=1) == (8 / 12, 12)


def test_planted_wrong_labels_stand_first_and_single_ones_are_not_judged(tmp_path):
    rows, labels = blobs(10, 20, 0.12)
    generator, wrong = np.random.default_rng(0), [7, 31, 58, 90, 133, 171]
    for row in wrong:
        labels[row] = f"class{(row // 20 + 1 + generator.integers(8)) % 10}"
    doubts, alone = label_issues(made(tmp_path / "g", torch.cat([rows, rows[:1]]), [*labels, "single"]), k=10)
    assert {doubt.row for doubt in doubts[: len(wrong)]} == set(wrong) and alone == 1
    for doubt in doubts[: len(wrong)]:
        assert doubt.instead == f"class{doubt.row // 20}" and doubt.share > doubt.own
    assert 200 not in {doubt.row for doubt in doubts}
    margins = [doubt.own - doubt.share for doubt in doubts]
    assert margins == sorted(margins)


def test_images_without_labels_are_refused(tmp_path):
    found = gallery.create(tmp_path / "g", torch.eye(4), ["a", "b", "c", "d"])
    for work in (lambda: classify(found, torch.eye(4), 1), lambda: checked(found), lambda: label_issues(found)):
        with pytest.raises(BadArgument):
            work()
