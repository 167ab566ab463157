"""The primer's statements, one function each, whose parameters are the studies that decide it."""

import numpy as np
import pandas as pd

from entp_lab.store import Record
from entp_lab.theory import Outcome, claim

EXACT = 1e-10  # computations that are the same
LIKE_A_LIBRARY = 1e-6  # computations that another library orders differently
DIFFERENT = 1e-3
SIGMAS = 4.0  # standard deviations that a counted rate may be off


def told_apart(bugs: Record, bug: str) -> pd.Series:
    """Return, for each case of a bug, whether its check fails on the printed code and passes on the
    corrected.
    """
    rows = pd.DataFrame(bugs.curves)
    return rows.loc[rows["bug"] == bug, "told_apart"]


def pairs_that_interact(bugs: Record, attention: str) -> int:
    """Count the pairs of tokens of which one moves the other's output."""
    return int((np.array(bugs.metrics["influence"][attention]) > EXACT).sum())


@claim("ED-all-tokens", section="§2.1.1")
def every_token_reaches_every_token(bugs: Record) -> Outcome:
    """Change each token and see which outputs change, in the encoder's attention as printed."""
    heads = told_apart(bugs, "B1")
    merge = told_apart(bugs, "B3")
    return Outcome(
        not heads.any(),
        f"as printed {pairs_that_interact(bugs, 'printed')} pairs of tokens interact",
        correction="with heads before tokens",
        corrected=heads.all() and merge.all(),
    )


@claim("ED-past", section="§3.1.1")
def the_mask_shows_the_past_alone(bugs: Record) -> Outcome:
    """Check that the printed causal mask hides later tokens and shows earlier ones."""
    cases = told_apart(bugs, "B2")
    return Outcome(
        not cases.any(),
        correction="on scores between tokens",
        corrected=cases.all(),
    )


@claim("ED-cache", section="§4.3.1")
def the_printed_cache_serves_generation(bugs: Record) -> Outcome:
    """Generate token by token with the printed cache."""
    cases = told_apart(bugs, "B6")
    return Outcome(
        not cases.any(),
        correction="with layers, places, a type, and more than one token",
        corrected=cases.all(),
    )


@claim("ED-layers", section="§2.1.2, §3.1.2")
def layers_equal_those_of_libraries(parity: Record) -> Outcome:
    """Compare the layers with PyTorch's and BERT's, with the same random weights."""
    difference = parity.metrics["largest_difference"]
    return Outcome(difference < LIKE_A_LIBRARY, f"largest difference {difference:.1e}")


@claim("ED-mlm", section="§2.2.1")
def tokens_are_masked_at_the_stated_rates(masking: Record) -> Outcome:
    """Count tokens: 15 % selected, of these 80 % masked, 10 % replaced and 10 % left."""
    found = masking.metrics
    never = (
        "special_selected",
        "special_drawn",
        "padding_seen",
        "unselected_changed",
        "labels_not_the_original",
    )
    return Outcome(
        found["largest_sigma"] < SIGMAS and not any(found[event] for event in never),
        f"rates within {found['largest_sigma']:.1f} standard deviations",
        remark="special tokens are neither to be selected nor to be drawn",
    )


@claim("ED-causal-loss", section="§3.2.1")
def losses_equal_their_definitions(losses: Record) -> Outcome:
    """Compare the loss with a loop: the mean of -log p over the labels that count."""
    difference = losses.metrics["largest"]
    return Outcome(
        difference < EXACT,
        f"largest difference {difference:.1e}",
        remark="NaN where all labels are ignored",
    )


@claim("ED-sampling", section="§3.2.2")
def ways_to_choose_do_what_they_say(sampling: Record) -> Outcome:
    """Compare greedy, beam, top-k, top-p and temperature with their definitions by brute force."""
    right = sampling.curves["right"]
    return Outcome(all(right), f"{sum(right)} of {len(right)} checks")


@claim("ED-cache-decoder", section="§4.3.1")
def the_past_can_be_kept_in_decoders(caches: Record) -> Outcome:
    """Keep keys and values in decoders of any depth, and in encoders of one layer alone."""
    apart = pd.DataFrame(caches.curves).set_index(["architecture", "n_layers"])["apart"]
    kept_in_decoders = apart["decoder"].max() < EXACT
    kept_in_one_layer = apart["entp", 1] < EXACT
    lost_in_deeper = apart["entp"].drop(1).min() > DIFFERENT
    return Outcome(
        kept_in_decoders and kept_in_one_layer and lost_in_deeper,
        f"ENTP's logits are off by {apart['entp'].max():.1g} from two layers on",
    )


@claim("ED-triangle", section="§4.1.1")
def attention_is_a_square_or_a_triangle(bugs: Record) -> Outcome:
    """Count N² pairs of tokens that interact in an encoder, and N (N + 1) / 2 in a decoder."""
    n = len(bugs.metrics["influence"]["causal"])
    square = pairs_that_interact(bugs, "corrected")
    triangle = pairs_that_interact(bugs, "causal")
    holds = square == n * n and triangle == n * (n + 1) // 2
    return Outcome(holds, f"{square} and {triangle} pairs of {n} tokens", remark="N (N + 1) / 2")


@claim("ED-training-cost", section="§4.2.1")
def a_pass_grows_with_the_square(costs: Record) -> Outcome:
    """Check that the work of one pass over N tokens grows as N² where N is large."""
    power = costs.metrics["one_pass"]
    return Outcome(
        1.9 < power <= 2,
        f"power {power:.2f}",
        remark="the linear maps, 12 N d², are more up to N = 6 d",
    )


@claim("ED-encoder-time", section="§4.2.2, §6.2, §8")
def encoders_take_constant_time(costs: Record) -> Outcome:
    """Check whether classifying a text takes a time that does not grow with it."""
    power = costs.metrics["one_pass"]
    return Outcome(
        power < 0.1,
        f"power {power:.2f}",
        correction="in one pass, whose work grows with n and n²",
        corrected=power > 1.9,
    )


@claim("ED-decoder-time", section="§4.2.2, §6.2")
def cached_generation_takes_linear_time(costs: Record) -> Outcome:
    """Check whether writing n tokens with a cache takes a time that grows as n."""
    power = costs.metrics["slopes"]["decoder, cache"]["counted"]
    return Outcome(
        power < 1.1,
        f"power {power:.2f}",
        correction="linear while linear maps outweigh attention, quadratic beyond",
        corrected=1.9 < power <= 2,
    )


@claim("ED-heads", section="§2.2.2")
def three_objectives_compute_what_libraries_do(heads: Record) -> Outcome:
    """Compare logits and losses with NSP in BERT, SOP in ALBERT and RTD in ELECTRA."""
    difference = heads.metrics["largest_difference"]
    return Outcome(difference < LIKE_A_LIBRARY, f"largest difference {difference:.1e}")


@claim("ED-parameters", section="§2.3.1, §3.3.1")
def models_have_the_printed_parameters(parameters: Record) -> Outcome:
    """Count the parameters of BERT and GPT models, and round them to the printed digits."""
    wrong = parameters.metrics["wrong"]
    counted = dict(zip(parameters.curves["model"], parameters.curves["counted"], strict=True))
    return Outcome(
        not wrong,
        f"{len(counted) - len(wrong)} of {len(counted)} models round to the printed number",
        correction="the largest GPT-2 has 1.56 billion",
        corrected=wrong == ["GPT-2, largest"] and round(counted["GPT-2, largest"] / 1e9, 2) == 1.56,
    )
