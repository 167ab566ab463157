"""Statements that no training decides: printed examples, counts of weights, Hopfield's capacity."""

import math
import operator

from entp_lab.experiment import Experiment
from entp_lab.store import Record
from entp_lab.studies import Study, plan_studies
from entp_lab.theory import Outcome, checks_of, claim
from entp_papers.compact.addition import HINTS, Format, coupled_ids, write
from entp_papers.compact.algorithms import ALGORITHMS
from entp_papers.compact.templates import all_templates

GPT_3 = 175e9  # parameters
FILLINGS = ("123", "456", "789", "159")
TABLE_1 = (
    ("polynomial", "3x311", "5"),
    ("sorting", "31415", "11345"),
    ("summation", "12347", "7"),
    ("parity", "10011", "n"),
    ("lego", "ap1bpacpbdpcc", "p"),
)
MOST = 0.5  # upper bound of C in C N / log N


def as_template(pattern: str) -> tuple[int, ...]:
    """Replace the letters of a pattern by numbers, in order of first appearance."""
    order = list(dict.fromkeys(pattern))
    return tuple(map(order.index, pattern))


def examples_study() -> Study:
    """Write every printed example by its definition; a row per example, as printed and as found."""
    pattern = as_template("ABCABCAB")
    filled = ["".join(filling[v] for v in pattern) for filling in FILLINGS]
    known = all_templates(8, 3)
    excluded = [as_template(text) in known for text in ("ABABABAB", "ABABABAC")]
    hints = ["".join(map("".join, zip(HINTS, n, strict=False))) for n in ("42", "39", "81")]
    ids = coupled_ids("$653+049=2070$", 6)
    rows = [
        (
            "a text",
            "12312312|45645645|78978978|15915915|123|456|789|159",
            "|".join([*filled, *FILLINGS]),
        ),
        (
            "one template, as often as written",
            [pattern] * 2,
            [as_template("ACBACBAC"), known[known.index(pattern)]],
        ),
        ("no templates", [False, False], excluded),
        ("reversed", "653+49=207", write(Format(), 653, 49).strip("$")),
        ("hinted", "a4b2+a3b9=a8b1", "{}+{}={}".format(*hints)),
        ("padded", "653+049=0702", write(Format(reverse=(), padded=True), 653, 49).strip("$")),
        ("padded and reversed", "$653+049=2070$", write(Format(padded=True), 653, 49)),
        ("ids of 653 and of 2070", [[6, 7, 8], [8, 7, 6, 5]], [ids[1:4], ids[9:13]]),
        ("addition", "53726+19177=72903", write(Format(reverse=()), 53726, 19177).strip("$")),
    ]
    for task, question, answer in TABLE_1:
        _, solve = ALGORITHMS[task]
        rows.append((task, f"{question}={answer}", f"{question}={solve(question)}"))
    names, printed, found = zip(*rows, strict=True)
    curves = {
        "example": list(names),
        "printed": list(map(str, printed)),
        "found": list(map(str, found)),
    }
    return {"wrong": sum(map(operator.ne, printed, found))}, curves


def patterns(nodes: float) -> float:
    """Return the most patterns of one bit per node that a Hopfield network of ``nodes`` stores."""
    return MOST * nodes / math.log(nodes)


def hopfield_study() -> Study:
    """Compute the capacity of a Hopfield network of GPT-3's size, by nodes and by weights."""
    nodes = math.sqrt(2 * GPT_3)  # of a network with that many weights, one for each pair of nodes
    return {
        "patterns_of_nodes": patterns(GPT_3),
        "share_of_500_billion_tokens": 500e9 / (2048 * patterns(GPT_3)),
        "gigabytes_at_two_bits": 2 * GPT_3 / 8 / 1e9,
        "nodes_of_weights": nodes,
        "patterns_of_weights": patterns(nodes),
    }, {}


@claim("CT-examples", section="§2.3.1, §2.4.2, table 1")
def printed_examples_follow_from_definitions(examples: Record) -> Outcome:
    """Write each printed example by its definition and compare."""
    wrong = examples.metrics["wrong"]
    return Outcome(
        wrong == 0,
        f"{wrong} of {len(examples.curves['example'])} differ",
        remark="hints count from the first digit in print, from the last here, "
        "where sums may be longer",
    )


@claim("CT-hopfield", section="§2.1.1")
def a_hopfield_network_of_gpt_3_stores_billions(hopfield: Record) -> Outcome:
    """Compute C N / log N for N = 175 billion, and what follows from it."""
    found = hopfield.metrics
    consistent = (
        3e9 < found["patterns_of_nodes"] < 4e9
        and round(found["share_of_500_billion_tokens"], 2) == 0.07
        and found["gigabytes_at_two_bits"] > 40
    )
    return Outcome(
        found["patterns_of_weights"] > 3e9,
        f"{found['patterns_of_weights']:,.0f} patterns in 175 billion weights",
        correction="N counts nodes: 175 billion weights are 592 thousand nodes "
        "and store 22 thousand patterns",
        corrected=consistent and round(found["patterns_of_weights"], -3) == 22_000,
    )


STUDIES = {"examples": {}, "hopfield": {}}
STATEMENTS = Experiment(
    "compact_statements",
    1,
    "Printed examples, and Hopfield's capacity",
    "12b_compact_details",
    plan_studies("compact_statements", {"smoke": STUDIES, "quick": STUDIES}),
    checks_of("entp_papers.compact.statements"),
)
