"""Length 24 with all prefixes: what is compared differs in what the comparison is about, and in nothing else."""

from dataclasses import replace

import pytest

from entp_lib.experiments import claims
from entp_lib.experiments.changes import compute_ratio
from entp_lib.experiments.operations import training_operations
from entp_lib.registry import EXPERIMENTS
from entp_lib.tasks import build_task
from entp_papers.entp.count3_long import COUNT3_LONG_ALL


def test_the_decoder_with_more_steps_is_that_of_the_pairs_and_has_half_of_entps_operations():
    pairs = {r.config.model_seed: r.config for r in EXPERIMENTS["count3_long_pairs"].plan("overnight", 0)[::3]}
    runs = COUNT3_LONG_ALL.plan("overnight", 0)
    assert len(runs) == 15 and runs[0].config.experiment == COUNT3_LONG_ALL.name
    for decoder, entp, more in zip(runs[::3], runs[1::3], runs[2::3], strict=True):
        assert entp.config == replace(decoder.config, model=entp.config.model)
        assert entp.config.model == replace(decoder.config.model, architecture="entp")
        assert more.config == pairs[more.labels["seed"]] and more.labels["arm"] == "more steps"
        shorter = replace(more.config.train, steps=12_000, eval_every=200)
        assert decoder.config == replace(more.config, experiment=COUNT3_LONG_ALL.name, train=shorter)
        assert training_operations(entp.config) / training_operations(decoder.config) == pytest.approx(6.6, abs=0.05)
        assert compute_ratio(build_task("counting", entp.config.task_params)) == 11
        assert training_operations(more.config) / training_operations(entp.config) == pytest.approx(0.50, abs=0.005)
    assert COUNT3_LONG_ALL.plan("quick", 0) == []


def test_each_row_has_the_decoder_that_it_names(ended):
    measured = COUNT3_LONG_ALL.measure(
        ended(COUNT3_LONG_ALL, {"decoder": 0.20, "entp": 0.26, "more steps": 0.44}, 0.102)
    )
    rows = claims.judge(measured, only_measured=True).set_index("id")
    assert rows["verdict"].to_dict() == {"F2-long-all": "ENTP ahead", "F2-long-all-more": "decoder ahead"}
    assert rows["our_value"].to_dict() == pytest.approx({"F2-long-all": 0.06, "F2-long-all-more": -0.18})
    assert "count3_long_pairs/" in rows.loc["F2-long-all-more", "records"]
    assert "count3_long_pairs/" not in rows.loc["F2-long-all", "records"]
