from isosphere.paper.tables import Asked, cells


def test_heads_differ_in_rate_and_start_alone_and_never_see_test_classes():
    found = cells("heads", Asked("cars196"))
    recipes = [recipe for its in found.values() for recipe in its.values()]
    assert len(found) == 18 and len(set(recipes)) == 36
    assert {recipe.data.held_out for recipe in recipes} == {20}
    assert {round(r.optimizer.lr / r.optimizer.backbone_lr) for r in recipes} == {1, 10, 100}
    assert {(r.loss, r.batches, r.seed, r.optimizer.weight_decay, r.data) for r in recipes} == {
        (recipes[0].loss, recipes[0].batches, 0, 2.5e-3, recipes[0].data)
    }
