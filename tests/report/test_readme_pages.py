"""README's generated parts and the pages of docs/: from the ledger alone, current or named."""

import math
import re

import pandas as pd
import pytest

from entp_lib import paths
from entp_lib.architectures import ARCHITECTURES
from entp_lib.collection import claims, experiment
from entp_lib.config import TIERS
from entp_lib.papers.entp.count3 import COUNT3
from entp_lib.report import elsewhere, findings, findings_page, pictures, readme
from entp_lib.report.tables import markdown
from entp_lib.runs.records import Record, Store
from entp_lib.strict import ConfigError


def test_findings_name_claims_that_there_are():
    known = claims.reference_claims().set_index("id")
    for finding in findings.FINDINGS:
        named = [*finding.leads, *(claim for claim, _ in finding.others)]
        assert set(named) <= set(known.index)


def test_a_value_that_only_the_authors_logged_is_called_so():
    from entp_lib.report.ledger import ledger

    table = findings.findings(ledger(Store(read_only=True))).set_index("the paper's finding")
    by_name = {name.split("**")[1]: value for name, value in table["paper"].items()}
    assert by_name["2 · Count3"] == "+0.293 (authors' log)" and by_name["3 · addition"].endswith("(authors' log)")
    assert by_name["5 · language"] == "+0.058"  # printed; its source names a log for the swapped rates
    count3 = next(row for name, row in table["ours (95 % interval)"].items() if "Count3" in name)
    assert "`quick`" not in count3  # no lead of a short run beside the budget of a long one


def test_every_verdict_and_tier_has_words():
    assert set(findings.VERDICT_WORDS) == set(claims.VERDICTS) and set(findings.TIER_WORDS) == set(TIERS)


def ledger_of(*tiers):
    columns = dict(our_value=0.1, verdict="same direction", kind="empirical", seeds=5)
    return pd.DataFrame([{"tier": tier, **columns} for tier in tiers])


@pytest.mark.parametrize(
    ("tiers", "said"),
    [
        (("quick", "quick"), "**Nothing ran at the paper's scale yet.** Comparisons measured: 2 at `quick`"),
        (("quick", "overnight"), "1 at `quick` (a reduced task, minutes on two CPU cores), 1 at `overnight`"),
        (("quick", "paper", "gpu"), "2 of 3 measured comparisons ran at the paper's size"),
        ((), "Comparisons measured: none."),
    ],
)
def test_the_scale_is_that_of_the_rows(tiers, said):
    table = ledger_of(*tiers) if tiers else ledger_of("quick").iloc[:0]
    assert said in findings.scale(table)


def test_trust_says_pairs_tier_and_settings():
    row = pd.Series(dict(verdict="inconclusive", kind="empirical", differs="steps 1,200 (150,000), width 64 (384)"))
    row = pd.concat([row, pd.Series(dict(seeds=5, tier="quick", caveats=""))])
    assert findings.trust(row) == "5 pairs at `quick`, 2 settings are not the paper's"
    row["caveats"] = "1 of 5 pairs from different sources; still improving after 900 steps"
    assert findings.trust(row) == "5 pairs at `quick`, 2 settings are not the paper's, models still improving"
    row["caveats"] = ""
    told = findings.trust(row, ("width", "length"))
    assert told == "5 pairs at `quick`, width 64 (the paper: 384), 1 more setting is not the paper's"
    assert "no record" in findings.trust(pd.Series(dict(verdict="not attempted")))
    assert "proof" in findings.trust(pd.Series(dict(verdict="verified", kind="theory")))


@pytest.mark.parametrize(
    ("tier", "said"),
    [
        ("overnight", "rates, at `overnight`: +0.100 (+0.050 to +0.150) **same direction**"),
        ("quick", "rates: same direction"),
        ("", "rates: same direction"),
    ],
)
def test_a_claim_beside_shows_its_value_where_it_ran_at_a_larger_tier(tier, said):
    row = ledger_of(tier).assign(id="T3-last", paper_value=None, low=0.05, high=0.15, notebook="09").iloc[0]
    assert findings.beside(row, "rates", "quick") == said


def test_a_finding_without_a_record_says_so(tmp_path):
    from entp_lib.report.ledger import ledger

    table = findings.findings(ledger(Store(tmp_path, read_only=True)))
    assert len(table) == len(findings.FINDINGS) and table["how far to trust it"].str.startswith("no record").all()
    assert not table["ours (95 % interval)"].str.contains(r"[+-]\d").any()


def test_missing_numbers_are_told(monkeypatch):
    there = [paths.notebooks() / f"{n:02d}_x.ipynb" for n in (0, 1, 3, 90)]
    monkeypatch.setattr(readme, "sorted_notebooks", lambda: there)
    said = readme.missing_numbers()
    assert re.search(r"\b02\b", said) and "05 (pretrained)" in said and "89" not in said
    monkeypatch.undo()
    assert readme.missing_numbers() == ""


def test_theory_has_no_seeds_and_every_link_leads_to_a_notebook():
    text = findings_page.with_links(*one_of_each())
    rows = [line for line in text.splitlines() if line.startswith("| 4.1") or line.startswith("| F2-tokens")]
    assert "| theory |" in rows[0] and "| 5 |" in rows[1]
    margin = claims.reference_claims().set_index("id").loc["F2-tokens", "margin"]
    assert "95 % interval | margin |" in text and f"| ±{margin:g} |" in rows[1] and "±" not in rows[0]
    for target in re.findall(r"\]\(<\.\./(.+?)#", text):
        assert (paths.root() / target).exists()


def one_of_each():
    reference = claims.reference_claims().set_index("id", drop=False)
    table = reference.loc[["4.1", "F2-tokens"]].assign(our_value=[None, 0.1], low=[None, 0.0], high=[None, 0.2])
    table = table.assign(seeds=[0, 5], tier="quick", verdict=["verified", "same direction"], records="")
    return table, findings_page.COLUMNS


def test_a_page_that_differs_is_named(tmp_path, monkeypatch):
    text = "".join(f"<!-- {name}:begin -->\n\n<!-- {name}:end -->\n" for name in readme.PARTS)
    (tmp_path / "README.md").write_text(text)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.setattr(readme, "ledger", lambda store: None)
    monkeypatch.setattr(readme, "PARTS", {name: lambda table: "made" for name in readme.PARTS})
    monkeypatch.setattr(readme, "PAGES", {"docs/a.md": lambda table, store: "a", "docs/b.md": lambda table, store: "b"})
    assert readme.outdated() == ["README.md", "docs/a.md", "docs/b.md"]
    readme.write()
    assert readme.outdated() == [] and (tmp_path / "README.md").read_text().count("made") == len(readme.PARTS)
    (tmp_path / "docs" / "b.md").write_text("typed")
    assert readme.outdated() == ["docs/b.md"]


def test_cells_keep_to_their_columns():
    assert markdown(pd.DataFrame({"a|b": ["c|d\ne"]})).splitlines()[-1] == "| c\\|d e |"
    assert markdown(pd.DataFrame({"a": ["x", None], "b": [1.5, math.nan]})).splitlines()[2:] == [
        "| x | 1.5 |",
        "|  |  |",
    ]


@pytest.mark.parametrize(("url", "name"), [("https://github.com/a/b", "a/b"), ("https://github.com/a/b.git", "a/b")])
def test_badges_lead_to_the_overview(tmp_path, monkeypatch, url, name):
    (tmp_path / "pyproject.toml").write_text(f'[project.urls]\nRepository = "{url}"\n')
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    assert elsewhere.repository() == name
    for service in ("mybinder.org/v2/gh/a/b/", "colab.research.google.com/github/a/b/"):
        assert service in elsewhere.links(name)
    assert elsewhere.links(name).count("00_overview.ipynb") == 2


def test_another_address_is_named(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/a"\n')
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    with pytest.raises(ConfigError, match=r"must be https://github\.com/OWNER/NAME"):
        elsewhere.repository()
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert elsewhere.repository() == "" and "Badges" in elsewhere.links("")


def test_the_picture_has_the_masks_of_the_models():
    picture, n = pictures.attention(), pictures.TOKENS
    causal = n * (n + 1) // 2
    cells = {"decoder": causal, "prefix_decoder": causal + pictures.PROMPT * (pictures.PROMPT - 1) // 2, "entp": n * n}
    for name, count in cells.items():
        assert picture.count(f'rx="3" fill="{ARCHITECTURES[name].colour}"') == count


def test_costs_are_processor_time_where_a_record_has_it():
    where = dict(wall_seconds=90.0, cpu_seconds=30.0)
    record, on_gpu = (Record("count3", 1, COUNT3.plan(tier, 1)[0].config, {}, {}, where) for tier in ("quick", "gpu"))
    assert experiment.spent(record) == 30 and experiment.spent(on_gpu) == 90
    del record.provenance["cpu_seconds"]
    assert experiment.spent(record) == 90
