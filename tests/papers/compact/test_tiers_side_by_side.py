"""A notebook's records beside quick's: what a higher tier lacks has quick's name, and lengths are its own."""

import pytest
from made_up import sound

from entp_lib.experiments.beside import by_tier
from entp_lib.records.store import Record
from entp_lib.reports.ledger import ledger
from entp_papers.compact import ABSTRACTION, LENGTHS, lengths

ARMS = ("architecture", "n_layers", "scored")


def bare(experiment, tier, keep=lambda run: True):
    """Records of a tier without scores."""
    runs = [run for run in experiment.plan(tier) if keep(run)]
    found = [Record(experiment.name, experiment.version, run.config, {}, {}, {}, "complete") for run in runs]
    return experiment.labelled(found, runs)


def sums(tier, token_accuracy):
    """Records of a tier; ``token_accuracy``: of (positions, architecture, digits over the trained), as a function."""
    found = bare(LENGTHS, tier)
    for r in found:
        trained, tested = (r.config.params[name] for name in ("trained_digits", "tested_digits"))
        tokens = {n: token_accuracy(r.labels["positions"], r.labels["architecture"], n / trained) for n in tested}
        for name, scores in (("accuracy", {n: float(n == trained) for n in tested}), ("token_accuracy", tokens)):
            r.metrics[name] = {n: scores[int(n)] for n in sorted(map(str, tested))}  # as a file keeps them
        r.curves["loss"] = [1.0]
    return found


def test_quick_stands_beside_a_tier_that_lacks_its_arms(store):
    quick, night = bare(ABSTRACTION, "quick"), bare(ABSTRACTION, "overnight")
    assert list(by_tier(ABSTRACTION, night, ARMS, store)) == ["overnight"]  # quick is not there
    for r in quick:
        store.save(sound(r))
    shown = by_tier(ABSTRACTION, night, ARMS, store)
    assert list(shown) == ["overnight", "quick"] and shown["overnight"] == night
    assert {tuple(r.labels[n] for n in ARMS) for r in shown["quick"]} > {("entp", 2, "sampled"), ("decoder", 3, "all")}
    for tier in ("smoke", "quick", "gpu"):  # smoke is shown alone, gpu has every arm
        assert list(by_tier(ABSTRACTION, bare(ABSTRACTION, tier), ARMS, store)) == [tier]


def test_tables_of_lengths_have_the_formats_of_each_tier_and_digits_in_order():
    tiers = {tier: sums(tier, lambda *_: 0.5) for tier in ("overnight", "quick")}
    tables = {tier: lengths.overview(part) for tier, part in tiers.items()}
    assert set(tables["overnight"].index.unique("format")) == {"padded", "hinted"}
    assert set(tables["quick"].index.unique("format")) == {"padded", "plain", "reversed", "hinted", "spaced"}
    assert (tables["overnight"].loc[("hinted", "learned"), "entp"] == "").all()  # the decoder alone was trained
    for tier, digits in (("overnight", [5, 7, 10, 15]), ("quick", [2, 3, 4, 6])):
        assert list(tables[tier].columns) == [(a, n) for a in lengths.ARCHITECTURES for n in digits]
    assert len(tables["quick"]) == 14
    assert tables["overnight"].loc[("padded", "none"), ("entp", 5)].startswith("1.00")


@pytest.mark.parametrize(
    ("tier", "digits", "seeds", "beyond"), [("quick", 2, "3 to 5 seeds", "3"), ("overnight", 5, "1 to 5 seeds", "7")]
)
def test_the_figure_says_what_was_trained_and_who_keeps_half(tier, digits, seeds, beyond):
    def tokens(positions, architecture, factor):
        return 0.9 if factor == 1 or (positions == "coupled" and architecture == "decoder" and factor <= 1.5) else 0.4

    records = sums(tier, tokens)
    assert lengths.heading(records) == f"to {digits} digits\n{tier}, {seeds}"
    assert lengths.reach(records).endswith(f"beyond training: coupled (decoder) to {beyond} digits")
    assert lengths.reach(records, 0.95).endswith("none")


def test_a_pair_of_a_higher_tier_hides_no_five_of_quick(store):
    """A notebook's verdicts are the ledger's, unless somebody asked for fewer runs."""
    quick, night = (sums(tier, lambda *_: 0.5) for tier in ("quick", "overnight"))
    for r in (*quick, *night):
        store.save(sound(r))
    found = {m.claim: (m.tier, len(m.values)) for m in LENGTHS.measurements(night, store)}
    assert found["CT-coupling"] == ("overnight", 5) and found["CT-relative"] == found["CT-none"] == ("quick", 5)
    rows = ledger(store).set_index("id").loc[list(found)]
    assert dict(zip(rows.index, rows["tier"], strict=True)) == {claim: tier for claim, (tier, _) in found.items()}
    fewer = [r for r in night if r.labels["seed"] < 3]
    asked = {m.claim: (m.tier, len(m.values)) for m in LENGTHS.measurements(fewer, store)}
    assert asked["CT-coupling"] == ("overnight", 3) and asked["CT-relative"] == ("overnight", 1)
    smoke = {m.tier for m in LENGTHS.measurements(sums("smoke", lambda *_: 0.5), store) if m.claim == "CT-coupling"}
    assert smoke == {"smoke"}
