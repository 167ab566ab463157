"""Experiments of a night each that begin with a gate, runs on a seed that no comparison uses, and
what followed.

Count3 at length 24, and addition trained to four digits. Whether five pairs follow, and by which
numbers, was written down before the first of these runs (docs/journal); what the gate gives is the
result if it stays shut. That of addition did. That of length 24, where ENTP learns from a few
random prefixes of each of many sequences, opened, so that its five pairs are planned here too: with
few prefixes, and with ENTP as it is defined, which learns from all of them on fewer steps (6.6
times a decoder's multiply-adds) and is compared with the decoder of the same steps and with that of
the pairs, which has more steps and still half of ENTP's multiply-adds.
"""

from dataclasses import replace

from entp_lab.budgets import MORE_STEPS, SAME_PREFIXES
from entp_lab.experiment import (
    TWINS,
    Experiment,
    PlannedRun,
    PlannedRuns,
    Tier,
    no_claims,
    planned,
    run_of,
    with_model,
    with_train,
)
from entp_papers.entp.addition.lengths import TIERS as LENGTHS
from entp_papers.entp.count3 import TIERS as COUNT3
from entp_papers.entp.count3 import lead_claims

SEED = 100  # pilots and gates have seeds from here on, comparisons those from 0
# of token accuracy, mean of the last ``LAST`` evaluations: either arm must have it
ABOVE_MODE = 0.05
LAST = 5
DECODERS = ("decoder", SAME_PREFIXES)  # with which ENTP is compared at length 24

LONG = replace(COUNT3["overnight"].train, steps=40_000, warmup_steps=200, eval_every=400)
COUNTING = {
    "smoke": COUNT3["smoke"],
    "overnight": Tier(
        dict(length=24, seed_length=8, symbols=24), COUNT3["overnight"].model, LONG, 5
    ),
}
FEW = {"smoke": 2, "overnight": 4}  # prefixes that ENTP draws of each sequence
ALL = {
    "smoke": dict(steps=10, eval_every=5),
    "overnight": dict(steps=12_000, eval_every=200),
}  # where it has them all
LONGER = dict(
    LENGTHS["overnight"].task, n_train=20_000, trained_digits=4, tested_digits=6, window=22
)
TRAIN = replace(LENGTHS["overnight"].train, steps=7000, eval_every=140)
FOUR_DIGITS = {
    "smoke": LENGTHS["smoke"],
    "overnight": replace(LENGTHS["overnight"], task=LONGER, train=TRAIN),
}


def seeds_of_pairs(tier: str, seeds: int) -> range:
    """Return the random seeds of a comparison's pairs: those asked for, or the tier's own."""
    return range(seeds or (2 if tier == "smoke" else 5))


def counting_run(experiment: str, tier: str, arm: str, seed: int) -> PlannedRun:
    """Plan one run at length 24; a seed's arms see the same sequences, scored on every prefix."""
    setting = COUNTING[tier]
    drawn = 0 if arm == "decoder" else FEW[tier]
    params = setting.task | ({"drawn": drawn} if drawn else {})
    architecture = "entp" if arm == "entp" else "decoder"
    config = run_of(
        experiment, tier, "counting", params, setting.model, setting.train, architecture, seed
    )
    return planned(config, arm=arm, drawn=drawn)


def plan_gate(tier: str, seeds: int) -> PlannedRuns:
    """Plan the gate: a decoder that learns from every scored prefix, ENTP from a few."""
    return [counting_run("count3_long", tier, arm, SEED) for arm in TWINS]


def plan_pairs(tier: str, seeds: int) -> PlannedRuns:
    """Plan the gate's runs on seeds of comparisons, and a decoder that has ENTP's few prefixes."""
    every = range(seeds or COUNTING[tier].seeds)
    arms = (*TWINS, SAME_PREFIXES)
    return [counting_run("count3_long_pairs", tier, arm, seed) for seed in every for arm in arms]


def plan_all_prefixes(tier: str, seeds: int) -> PlannedRuns:
    """Plan decoder and ENTP on all prefixes, and the decoder that ``count3_long_pairs`` has."""
    for seed in range(seeds or COUNTING[tier].seeds):
        few_steps = counting_run("count3_long_all", tier, "decoder", seed).config
        base = with_train(few_steps, **ALL[tier])
        yield from [planned(with_model(base, architecture=name), drawn=0) for name in TWINS]
        longer = counting_run("count3_long_pairs", tier, "decoder", seed)
        yield planned(longer.config, arm=MORE_STEPS, drawn=0)


def plan_four_digits(tier: str, seeds: int) -> PlannedRuns:
    """Plan one run of ENTP, on the gate's seed."""
    name = "addition_four_digits"
    setting = FOUR_DIGITS[tier]
    params = {**setting.task, "split_seed": SEED}
    config = run_of(name, tier, "long_addition", params, setting.model, setting.train, "entp", SEED)
    return [planned(config, n_train=params["n_train"])]


def experiment(name: str, title: str, notebook: str, plan, measure=no_claims) -> Experiment:
    """Make one of these experiments."""
    of = "addition_lengths" if notebook == "07_addition" else "count3"
    return Experiment(name, 1, title, notebook, plan, measure, tiers=COUNTING, paper_runs_of=of)


COUNT3_LONG = experiment(
    "count3_long",
    "Count3 at length 24, few prefixes of many sequences: the gate",
    "03b_count3_details",
    plan_gate,
)
COUNT3_LONG_PAIRS = experiment(
    "count3_long_pairs",
    "Count3 at length 24, few prefixes of many sequences: pairs",
    "03b_count3_details",
    plan_pairs,
)
COUNT3_LONG_ALL = experiment(
    "count3_long_all",
    "Count3 at length 24, all prefixes",
    "03_count3",
    plan_all_prefixes,
    lead_claims({"F2-long-all": "decoder", "F2-long-all-more": MORE_STEPS}),
)
ADDITION_FOUR_DIGITS = experiment(
    "addition_four_digits",
    "Addition trained to four digits: the gate",
    "07_addition",
    plan_four_digits,
)
