"""Every study runs at a small size, gives the same twice, and says what it is there to say."""

import json

import pytest

from entp_lib.registry import STUDIES as NAMED
from entp_lib.validation import ConfigError
from entp_papers.looped.experiment import LOOPED

SMALL = {
    "looped_random_programs": dict(shapes=[[4, 5, 6, 4], [8, 8, 8, 4]], steps=6, precisions=["fp32", "fp64"]),
    "looped_circuits": dict(most_bits=3, random_pairs=100, flag_bits=4, pointer=2),
    "looped_copying": dict(cases=4, most_tokens=20, most_numbers=3),
    "looped_drift": dict(steps=50, heats=[3.0, 10.0], cold_steps=8),
    "looped_temperature": dict(bits=[4, 8], heats=[1.0, 12.0], programs=5, steps=5),
    "looped_off_target": dict(tokens=[16, 64], heats=[1.0, 4.0]),
    "looped_masks": dict(programs=4, steps=4),
    "looped_restricted": dict(programs=2, steps=4, sizes=[21]),
    "looped_product": dict(d=2, deltas=[1e-3, 1e-5, 1e-7, 1e-10, 1e-11], sinks=[10.0, 40.0], pairs=3),
    "looped_sigmoids": dict(terms=[10, 30]),
    "looped_transpose": dict(sizes=[2, 3], one_layer=[4]),
    "looped_contract": dict(sizes=[2]),
    "looped_depth": dict(levels=[0, 1, 14], deltas=[1e-2, 1e-4], points=100_003),
    "looped_fleq": dict(programs=1, commands=5),
    "looped_calculator": dict(terms=[10, 40], inputs=12),
    "looped_newton": dict(d=2, rounds=8, matrices=1),
    "looped_power": dict(d=2, rounds=4, terms=20),
    "looped_regression": dict(features=2, examples=3, steps=4, rate=0.1),
    "looped_back_propagation": dict(inputs=2, hidden=2, samples=2, rounds=2, rate=0.2),
    "looped_least_squares": dict(dimension=2, most_examples=3, prompts=2, rounds=20),
    "looped_sizes": dict(tokens=[16, 64]),
    "looped_multiply": dict(x=3, y=2),
}
STUDIES = {name: NAMED[name] for name in NAMED if name.startswith("looped_")}
NOT_TWICE = ("looped_speed",)  # wall-clock


@pytest.fixture(scope="module")
def found():
    return {name: STUDIES[name](**params) for name, params in SMALL.items()}


def rows_of(curves):
    return [dict(zip(curves, values, strict=True)) for values in zip(*curves.values(), strict=True)]


def test_all_studies_but_slow_ones_are_here():
    assert set(STUDIES) - set(SMALL) == {"looped_library", "looped_errata", *NOT_TWICE}


def test_every_tier_runs_every_study():
    for tier in ("smoke", "quick"):
        assert {config.study for config in LOOPED.configs(tier)} == set(STUDIES)


@pytest.mark.parametrize("name", SMALL)
def test_results_are_plain_and_come_again(name, found):
    metrics, curves = found[name]
    text = json.dumps([metrics, curves], allow_nan=False)
    assert len({len(values) for values in curves.values()}) == 1
    if name in ("looped_product", "looped_masks", "looped_regression", "looped_drift"):
        assert json.dumps(STUDIES[name](**SMALL[name])) == text


def test_proofs_by_test_find_nothing_wrong(found):
    for name in ("looped_random_programs", "looped_circuits", "looped_drift", "looped_restricted"):
        assert found[name][0]["wrong"] == 0
    assert found["looped_random_programs"][0]["same_weights"]
    assert found["looped_contract"][0]["kept"]
    assert found["looped_fleq"][0]["wrong_branches"] == 0 and found["looped_fleq"][0]["largest_error"] < 1e-4


def test_copying(found):
    metrics, curves = found["looped_copying"]
    errors = {(r["operation"], r["setting"]): r["error"] for r in rows_of(curves)}
    assert metrics["largest_error"] < 1e-9
    assert min(errors["read", "C small"], errors["write", "C small"], errors["write", "as printed"]) > 0.01
    assert next(r["again"] for r in rows_of(curves) if r["operation"] == "write") < 1e-9  # idempotent


def test_temperature(found):
    assert found["looped_off_target"][0]["within_bound"]
    cold = [r["right"] for r in rows_of(found["looped_temperature"][1]) if r["heat"] == 1.0]
    assert max(cold) < 0.5 and found["looped_temperature"][0]["enough"] == {"4": 12.0, "8": 12.0}


def test_masks(found):
    rows = rows_of(found["looped_masks"][1])
    assert [r["memory"] == pytest.approx(1) for r in rows] == [True, True, False, False]


def test_errors_of_functions(found):
    product, sigmoids = found["looped_product"][0], found["looped_sigmoids"][0]
    assert product["slope_above"] == pytest.approx(1, abs=0.05) and product["slope_below"] < -0.5
    assert all(slope < -0.5 for slope in sigmoids["slopes"].values())
    assert max(sigmoids["lemma_5"].values()) < 1e-10
    assert found["looped_depth"][0]["levels_for_the_same"] == 14


def test_learning_equals_torch(found):
    for name in ("looped_regression", "looped_back_propagation"):
        metrics = found[name][0]
        assert metrics["largest_difference"] < 1e-4 and metrics["loss_last"] < metrics["loss_first"]
    assert found["looped_calculator"][0]["slope"] < -0.5
    residual = found["looped_newton"][0]["largest_residual"]
    assert residual["transposed, machine"] < 1e-3
    assert found["looped_power"][0]["cosine"] > 0.9
    power = found["looped_power"][1]
    assert power["sine"] == pytest.approx([(1 - cosine**2) ** 0.5 for cosine in power["cosine"]], rel=1e-6)
    assert found["looped_least_squares"][0]["largest_difference"] < 1e-4


def test_multiply_step_by_step(found):
    metrics, curves = found["looped_multiply"]
    assert metrics["product"] == 6 and len(curves["memory"]) == metrics["steps"] + 1
    assert len(curves["attends"][1]) == len(metrics["heads"]) == 4


def test_speed_compares_all_forms():
    _, curves = STUDIES["looped_speed"](tokens=[9], batches=[1], seconds=1e-4)
    assert set(curves["form"]) == {"dense", "sparse", "sparse, restricted", "numpy"}
    assert min(curves["passes_per_second"]) > 0


@pytest.mark.parametrize(
    "name,params,message",
    [
        ("looped_random_programs", dict(shapes=[[4, 5, 6, 0]], steps=1, precisions=[]), "programs = 0"),
        ("looped_random_programs", dict(shapes=[[4, 5, 6, 1]], steps=1, precisions=["fp16"]), "'fp16'"),
        ("looped_power", dict(d=2, rounds=1, terms=5, gap=1.0), "gap = 1.0"),
        ("looped_temperature", dict(bits=[4], heats=[]), "heats is empty"),
        ("looped_fleq", dict(programs=0, commands=5), "programs = 0"),
        ("looped_back_propagation", dict(inputs=2, hidden=2, samples=0, rounds=1, rate=0.1), "samples = 0"),
        ("looped_least_squares", dict(dimension=2, most_examples=2, prompts=1, rounds=1, ridge=0.0), "ridge = 0.0"),
        ("looped_speed", dict(tokens=[9], batches=[1], seconds=0.0), "seconds = 0.0"),
    ],
)
def test_impossible_parameters(name, params, message):
    with pytest.raises(ConfigError, match=message):
        STUDIES[name](**params)
