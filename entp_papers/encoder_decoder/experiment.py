"""The runs of the primer on encoders and decoders: exact studies, and one backbone trained in three
ways.
"""

import itertools

import pandas as pd

from entp_lab.experiment import Experiment, PlannedRuns, planned_study
from entp_lab.measurements import Comparisons, Paired
from entp_lab.store import Records
from entp_lab.studies import flat, plan_studies
from entp_lab.theory import checks_of

NOTEBOOK = "14_encoder_vs_decoder"

STUDIES = {
    "smoke": {
        "bugs": dict(),
        "parity": dict(libraries=["torch"]),
        "masking": dict(tokens=20_000, libraries=[]),
        "losses": dict(seeds=2),
        "sampling": dict(draws=2000, top_k=2),
        "caches": dict(depths=[1, 2], length=6, seeds=1),
        "costs": dict(lengths=[4, 8], far=[2**10, 2**11], n_layers=2, width=8, rounds=1),
        "permutations": dict(depths=[1, 2], length=6, orders=3),
        "coordinates": dict(constants=[5.0, 60.0], lengths=[6], n_layers=2),
        "parameters": dict(),
    },
    "quick": {
        "bugs": dict(),
        "parity": dict(libraries=["torch", "transformers"]),
        "masking": dict(tokens=1_000_000, libraries=["transformers"]),
        "losses": dict(seeds=20),
        "sampling": dict(draws=100_000, top_k=2),
        "caches": dict(depths=[1, 2, 3], length=12, seeds=10),
        "costs": dict(
            lengths=[32, 64, 128, 256, 512], far=[2**14, 2**15], n_layers=2, width=32, rounds=3
        ),
        "permutations": dict(depths=[1, 2, 3], length=12, orders=20),
        "coordinates": dict(
            constants=[5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 100.0], lengths=[8, 16], n_layers=3
        ),
        "parameters": dict(),
        "heads": dict(),
    },
}

ENCODER_DECODER = Experiment(
    "encoder_decoder",
    1,
    "Encoder and decoder: the primer's bugs, its parts rightly built, costs",
    NOTEBOOK,
    plan_studies("encoder_decoder", STUDIES),
    checks_of("entp_papers.encoder_decoder.claims"),
    jobs=1,  # CPU time is measured
)

# By arm: the objective, and how many positions of a window ENTP is scored at. The last is stored
# and not shown: its compute is half of the others'.
ARMS = {
    "masked": ("masked", "many"),
    "decoder": ("causal", "many"),
    "ENTP": ("entp", "many"),
    "ENTP, few positions": ("entp", "few"),
}
SHOWN = ("masked", "decoder", "ENTP")
TIERS = {
    "smoke": dict(
        text=dict(corpus="README.md", split="tail", held_out=0.1, context=8),
        prefixes=dict(many=4, few=2),
        setting=dict(
            n_layers=2,
            n_heads=2,
            width=16,
            labelled=16,
            epochs=1,
            tested=16,
            curve_windows=8,
            candidates=2,
        ),
        train=dict(steps=4, batch_size=8, warmup_steps=1, eval_every=2),
        seeds=1,
    ),
    "quick": dict(
        # documentation of the versions in requirements.txt
        text=dict(corpus="embedded", checksum="0cd7320f118b0da6", context=32),
        prefixes=dict(many=8, few=2),
        # with learned positions a masked model does not leave the unigram loss in these steps
        setting=dict(
            n_layers=2,
            n_heads=4,
            width=64,
            positions="rotary",
            labelled=1024,
            epochs=4,
            tested=512,
            curve_windows=128,
            candidates=32,
        ),
        train=dict(
            steps=500,
            batch_size=32,
            max_lr=3e-3,
            min_lr=3e-4,
            warmup_steps=50,
            grad_clip=1.0,
            eval_every=100,
        ),
        seeds=5,
    ),
}
NEAR_NATS = 0.1
NEAR_SHARE = 0.03  # closer to guessing counts as nothing learned, as for the nats above


def plan_objectives(tier: str, seeds: int) -> PlannedRuns:
    """Plan every arm at every seed; arms of a seed share texts, initial weights and misprints."""
    setting = TIERS[tier]
    for seed, (arm, (objective, scored)) in itertools.product(
        range(seeds or setting["seeds"]), ARMS.items()
    ):
        text = dict(setting["text"], prefixes=setting["prefixes"][scored])
        whole = dict(objective=objective, text=text, **setting["setting"])
        yield planned_study(
            "objectives",
            tier,
            "encoder_decoder_objective",
            dict(setting=whole, train_config=setting["train"], model_seed=seed, data_seed=seed),
            seed,
            arm=arm,
            objective=objective,
        )


def scores(records: Records) -> pd.DataFrame:
    """Return a row per run, with the ``chance`` of guessing a misprint.

    ``informed_loss``: that of the middle token by candidates, or by what a model sees without them.
    """
    rows = flat(records)
    places = records[0].config.params["setting"]["text"]["context"] + 1
    informed = rows["candidate_loss"].astype(float).fillna(rows["middle_loss_few"])
    return rows.assign(chance=1 / places, informed_loss=informed)


MISPRINTS = Comparisons(
    (Paired("ED-classification", "accuracy", "masked", "decoder"),),
    floor="chance",
    near=NEAR_SHARE,
    frame=scores,
)
MEASURE_OBJECTIVES = Comparisons(
    (
        Paired("ED-next-token", "next_token_loss", "masked", "decoder"),
        Paired("ED-both-sides", "middle_loss", "decoder", "masked"),
        Paired("ED-entp-next", "next_token_loss", "ENTP", "decoder"),
        Paired("ED-bayes", "informed_loss", "decoder", "masked"),
    ),
    floor="unigram",
    ceiling=0.0,
    near=NEAR_NATS,
    frame=scores,
    others=[MISPRINTS],
)

OBJECTIVES = Experiment(
    "objectives",
    1,
    "Masked, causal and ENTP's training of one backbone on one text",
    NOTEBOOK,
    plan_objectives,
    MEASURE_OBJECTIVES,
    tiers=TIERS,
)


# --- Objectives of encoders, and ways to fine-tune ------------------------------------------------


# By objective: what its model is for.
PARTS = {
    "nsp": "pretraining",
    "sop": "pretraining",
    "rtd": "pretraining",
    "masked": "tuning",
    "causal": "tuning",
}


def plan_pretraining(tier: str, seeds: int) -> PlannedRuns:
    """Plan per seed NSP, SOP, RTD, and all ways of fine-tuning a masked model and a decoder."""
    chosen = TIERS[tier]
    text = dict(chosen["text"], prefixes=chosen["prefixes"]["many"])
    for seed, (objective, part) in itertools.product(range(seeds or 1), PARTS.items()):
        setting = dict(objective=objective, text=text, **chosen["setting"])
        yield planned_study(
            "encoder_decoder_pretraining",
            tier,
            f"encoder_decoder_{part}",
            dict(setting=setting, train_config=chosen["train"], seed=seed),
            seed,
            objective=objective,
            part=part,
        )


PRETRAINING = Experiment(
    "encoder_decoder_pretraining",
    1,
    "NSP, SOP and RTD on the small model, and ways of fine-tuning",
    NOTEBOOK,
    plan_pretraining,
    tiers=TIERS,
)
