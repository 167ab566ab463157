"""The corrected parts against those of PyTorch and ``transformers``, with the same random weights.

All are in double precision. ``transformers`` is imported only where it is compared.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lab.configs import Json
from entp_lab.frames import published
from entp_lab.studies import Study, columns, largest, seeded
from entp_lib.config import ModelConfig
from entp_lib.model import Transformer, build_model, parameter_count
from entp_lib.validation import require
from entp_papers.encoder_decoder.bugs import (
    across_tokens,
    apart_from_torch,
    causally,
    states,
    torch_attention,
)
from entp_papers.encoder_decoder.parts import (
    DRAWN,
    MASKED,
    MaskedBatch,
    Masking,
    Stack,
    causal_mask,
    mask_tokens,
    random_stack,
)
from entp_papers.encoder_decoder.pretraining import Head, token_loss

VOCABULARY = 29
PLACES = 12
# Shape of the small models of ``transformers``, apart from their layers.
SHAPE = dict(
    hidden_size=16,
    num_attention_heads=4,
    intermediate_size=40,
    vocab_size=VOCABULARY,
    max_position_embeddings=PLACES,
)


def texts() -> tuple[Tensor, Tensor]:
    """Return token ids (B, T) in rows of different lengths, and a mask of those not padding."""
    tokens_BT = torch.randint(VOCABULARY, (3, 9), generator=seeded(0))
    return tokens_BT, torch.arange(9) < torch.tensor([[9], [7], [5]])


@torch.no_grad()
def torch_layer(causal: bool) -> float:
    """Compare a post-norm layer with PyTorch's: ReLU for the encoder, GELU for the decoder."""
    activation = "gelu" if causal else "relu"
    x_BTD = states()
    ours = random_stack(3, 1, 4, 16, 40, 1, 0, causal=causal, activation=activation).layers[0]
    theirs = nn.TransformerEncoderLayer(
        16, 4, 40, 0.0, activation, batch_first=True, dtype=torch.float64
    ).eval()
    theirs.self_attn.load_state_dict(torch_attention(ours.attention).state_dict())
    for other, mine in (
        (theirs.linear1, ours.fc_in),
        (theirs.linear2, ours.fc_out),
        (theirs.norm1, ours.norm_1),
        (theirs.norm2, ours.norm_2),
    ):
        other.load_state_dict(mine.state_dict())
    allowed = causal_mask(x_BTD.shape[1]) if causal else None
    return largest(ours(x_BTD, allowed), theirs(x_BTD, src_mask=~allowed if causal else None))


@torch.no_grad()
def bert(padded: bool) -> float:
    """Compare our encoder with a BERT of the same random weights, at every token but padding.

    BERT's embedding of the first segment is set to zero, because our encoder has no segments.
    """
    import transformers

    config = transformers.BertConfig(**SHAPE, num_hidden_layers=3, attn_implementation="eager")
    theirs = transformers.BertModel(config, add_pooling_layer=False).double().eval()
    ours = random_stack(
        0,
        3,
        4,
        16,
        40,
        VOCABULARY,
        PLACES,
        activation="gelu",
        norm_eps=1e-12,
        input_norm=True,
    )
    table = theirs.embeddings
    table.token_type_embeddings.weight.zero_()
    pairs = [
        (table.word_embeddings, ours.embedding),
        (table.position_embeddings, ours.positions),
        (table.LayerNorm, ours.input_norm),
    ]
    for other, mine in zip(theirs.encoder.layer, ours.layers, strict=True):
        heads = other.attention.self
        qkv = mine.attention.qkv
        for linear, weight, bias in zip(
            (heads.query, heads.key, heads.value),
            qkv.weight.chunk(3),
            qkv.bias.chunk(3),
            strict=True,
        ):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        pairs += [
            (other.attention.output.dense, mine.attention.out),
            (other.attention.output.LayerNorm, mine.norm_1),
            (other.intermediate.dense, mine.fc_in),
            (other.output.dense, mine.fc_out),
            (other.output.LayerNorm, mine.norm_2),
        ]
    for other, mine in pairs:
        other.load_state_dict(mine.state_dict())
    tokens_BT, visible_BT = texts()
    if not padded:
        return largest(ours(tokens_BT), theirs(tokens_BT).last_hidden_state)
    expected = theirs(tokens_BT, attention_mask=visible_BT.long()).last_hidden_state
    return largest(ours(tokens_BT, visible_BT)[visible_BT], expected[visible_BT])


@torch.no_grad()
def copy_gpt2(source: nn.Module, model: Transformer) -> None:
    """Fill ``model``, of the same shapes, with the weights of a ``GPT2Model``.

    ConfigError if the two compute differently.
    """
    theirs = source.config
    pairs = {  # settings that the shapes of weights do not show
        "n_heads": (theirs.n_head, model.cfg.n_heads),
        "epsilon of the norms": (theirs.layer_norm_epsilon, model.ln_f.eps),
        "activation_function": (  # of which one has two names
            theirs.activation_function.replace("gelu_pytorch_tanh", "gelu_new"),
            "gelu_new",
        ),
    }
    for name, (expected, found) in pairs.items():
        require(expected == found, f"{name}: the GPT-2 has {expected}, this model {found}")
    model.embedding.weight.copy_(source.wte.weight)
    model.positions.weight.copy_(source.wpe.weight)
    copies = [(source.ln_f, model.ln_f)]
    for theirs, ours in zip(source.h, model.blocks, strict=True):
        copies += [
            (theirs.ln_1, ours.ln_1),
            (theirs.ln_2, ours.ln_2),
            (theirs.attn.c_attn, ours.attention.qkv),
            (theirs.attn.c_proj, ours.attention.out),
            (theirs.mlp.c_fc, ours.fc_in),
            (theirs.mlp.c_proj, ours.fc_out),
        ]
    for theirs, ours in copies:
        ours.weight.copy_(theirs.weight.T if isinstance(ours, nn.Linear) else theirs.weight)
        ours.bias.copy_(theirs.bias)


def gpt2() -> float:
    """Compare the library's decoder with a GPT-2 of the same random weights: all logits."""
    import transformers

    tokens_BT, _ = texts()
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=PLACES,
        n_embd=16,
        n_layer=3,
        n_head=4,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = transformers.GPT2LMHeadModel(config).double().eval()
    model = build_model(ModelConfig("decoder", 3, 4, 16, VOCABULARY, PLACES)).double().eval()
    copy_gpt2(theirs.transformer, model)
    return largest(model(tokens_BT).view(*tokens_BT.shape, -1), theirs(tokens_BT).logits)


# By library: functions that return how far a part of ours is from the library's.
PARTS = {
    "torch": {
        "attention, nn.MultiheadAttention": lambda: apart_from_torch(across_tokens),
        "causal attention, nn.MultiheadAttention": lambda: apart_from_torch(
            causally(across_tokens), causal=True
        ),
        "encoder layer, nn.TransformerEncoderLayer": lambda: torch_layer(False),
        "decoder layer, nn.TransformerEncoderLayer": lambda: torch_layer(True),
    },
    "transformers": {
        "encoder of three layers, BertModel": lambda: bert(False),
        "the same with padding, BertModel": lambda: bert(True),
        "decoder of three layers, GPT2LMHeadModel": gpt2,
    },
}


def properties() -> dict[str, float]:
    """Measure two properties of untrained stacks.

    They are how an encoder without positions treats a permutation, and which stack sees a changed
    later token.
    """
    tokens_BT, _ = texts()
    order = torch.randperm(tokens_BT.shape[1], generator=seeded(1))
    bag = random_stack(5, 2, 4, 16, 40, VOCABULARY, 0)
    later = tokens_BT.clone()
    later[:, -1] = (later[:, -1] + 1) % VOCABULARY
    found = {
        "permuted encoder without positions": largest(
            bag(tokens_BT)[:, order], bag(tokens_BT[:, order])
        )
    }
    for name, causal in (("encoder", False), ("decoder", True)):
        stack = random_stack(5, 2, 4, 16, 40, VOCABULARY, PLACES, causal=causal)
        found[f"{name}, a later token changed"] = largest(
            stack(tokens_BT)[:, :-1], stack(later)[:, :-1]
        )
    return found


@torch.no_grad()
def parity_study(libraries: Sequence[str]) -> Study:
    """Compare every part with its library's. ConfigError for a library that is not installed."""
    rows = [
        {"library": library, "part": part, "difference": compare()}
        for library in libraries
        for part, compare in PARTS[library].items()
    ]
    return {
        "largest_difference": max(row["difference"] for row in rows),
        "properties": properties(),
    }, columns(rows)


# --- Heads of three objectives, and whole models' parameters --------------------------------------


@torch.no_grad()
def heads_study() -> Study:
    """Compare logits and losses of NSP, SOP and RTD with those of BERT, ALBERT and ELECTRA.

    Our heads read the states of these models.
    """
    import transformers

    tokens_BT, _ = texts()
    wrong_B = torch.tensor([0, 1, 1])
    replaced_BT = tokens_BT % 2
    shape = dict(SHAPE, num_hidden_layers=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bert = transformers.BertForNextSentencePrediction(transformers.BertConfig(**shape))
        albert = transformers.AlbertForPreTraining(
            transformers.AlbertConfig(**shape, embedding_size=8)
        )
        electra = transformers.ElectraForPreTraining(
            transformers.ElectraConfig(**shape, embedding_size=8)
        )
    for model in (bert, albert, electra):
        model.double().eval()
    of_bert = bert(tokens_BT, labels=wrong_B)
    of_albert = albert(tokens_BT, labels=tokens_BT, sentence_order_label=wrong_B)
    of_electra = electra(tokens_BT, labels=replaced_BT)
    # ALBERT adds the loss of its masked tokens
    masked = F.cross_entropy(of_albert.prediction_logits.flatten(0, 1), tokens_BT.flatten())
    electra_head = electra.discriminator_predictions
    # the library's states, both its linear maps, its logits and its loss
    cases = {
        "NSP": (
            bert.bert,
            bert.bert.pooler.dense,
            bert.cls.seq_relationship,
            of_bert.logits,
            of_bert.loss,
        ),
        "SOP": (
            albert.albert,
            albert.albert.pooler,
            albert.sop_classifier.classifier,
            of_albert.sop_logits,
            of_albert.loss - masked,
        ),
        "RTD": (
            electra.electra,
            electra_head.dense,
            electra_head.dense_prediction,
            of_electra.logits,
            of_electra.loss,
        ),
    }
    rows = []
    for objective, (encoder, dense, out, logits, loss) in cases.items():
        states_BTD = encoder(tokens_BT).last_hidden_state
        by_token = objective == "RTD"
        head = Head(16, by_token).double()
        head.dense = dense
        head.out = out
        found = head(states_BTD if by_token else states_BTD[:, 0])
        own_loss = token_loss(found, replaced_BT) if by_token else F.cross_entropy(found, wrong_B)
        rows.append(
            {
                "objective": objective,
                "library": type(encoder).__name__,
                "logits": largest(found.squeeze(-1), logits),
                "loss": largest(own_loss, loss),
            }
        )
    return {"largest_difference": max(max(row["logits"], row["loss"]) for row in rows)}, columns(
        rows
    )


def parameters_study() -> Study:
    """Count the parameters of published models, built without weights; compare printed numbers."""
    counted = []
    table = published("encoder_decoder", "parameters")
    for model in table.itertuples():
        with torch.device("meta"):
            stack = Stack(
                model.layers,
                model.heads,
                model.width,
                4 * model.width,
                model.vocabulary,
                model.context,
                input_norm=model.kind == "BERT",
            )
            whole = nn.ModuleList([stack])
            if model.kind == "BERT":  # two segments, and the map of the first token
                whole += [nn.Embedding(2, model.width), nn.Linear(model.width, model.width)]
            elif model.kind == "GPT-2":  # norms before the layers, and one after the last
                whole.append(nn.LayerNorm(model.width))
        counted.append(parameter_count(whole, embeddings=True))
    table = table.assign(counted=counted)
    rounded = [float(f"{row.counted:.{row.digits}g}") for row in table.itertuples()]
    wrong = table.loc[rounded != table["printed"], "model"].tolist()
    return {"wrong": wrong}, table[["model", "printed", "counted"]].to_dict("list")


# --- Masked batches -------------------------------------------------------------------------------


def collated(
    tokens_BT: Tensor, masking: Masking, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mask tokens by the collator of ``transformers`` from a generator: inputs and labels."""
    from transformers import DataCollatorForLanguageModeling

    class SpecialTokens:
        """The part of a tokenizer that the collator needs, for ids alone."""

        mask_token = "[MASK]"

        def __len__(self) -> int:
            return masking.vocab_size

        def convert_tokens_to_ids(self, token: str) -> int:
            return masking.mask_token

    collator = DataCollatorForLanguageModeling(SpecialTokens(), mlm_probability=masking.share)
    collator.generator = generator
    special_BT = torch.isin(tokens_BT, torch.tensor(masking.special))
    return collator.torch_mask_tokens(tokens_BT.clone(), special_BT)


def rates(by: str, tokens_BT: Tensor, batch: MaskedBatch, masking: Masking) -> list[Json]:
    """Return a row per rate: by whom, count, total, share, nominal share, and its error in sigmas.

    A drawn token equals the old one once in as many as may be drawn, so that slightly more tokens
    are kept.
    """
    ordinary_BT = ~torch.isin(tokens_BT, torch.tensor(masking.special))
    selected_BT = batch.selected_BT
    masked_BT = batch.inputs_BT == masking.mask_token
    same_BT = batch.inputs_BT == tokens_BT
    same = DRAWN / len(masking.ordinary())
    found = []
    for rate, hits, share in (
        ("selected", selected_BT[ordinary_BT], masking.share),
        ("masked", masked_BT[selected_BT], MASKED),
        ("drawn", (~masked_BT & ~same_BT)[selected_BT], DRAWN - same),
        ("kept", same_BT[selected_BT], 1 - MASKED - DRAWN + same),
    ):
        of = hits.numel()
        count = int(hits.sum())
        found.append(
            dict(
                by=by,
                rate=rate,
                count=count,
                of=of,
                share=count / of,
                nominal=share,
                sigmas=(count - of * share) / (of * share * (1 - share)) ** 0.5,
            )
        )
    return found


def masking_study(tokens: int, libraries: Sequence[str]) -> Study:
    """Count rates of masking over random tokens, and those of ``transformers``' collator.

    A tenth of the tokens are special. Metrics: counts of events that must not happen (a special
    token selected, an unselected one changed, a label other than the original, a special token
    drawn), and whether the collator, from the same generator, selects and masks the same tokens.
    """
    masking = Masking(vocab_size=1000, mask_token=999, special=(998, 999))
    tokens_BT = torch.randint(998, (-(-tokens // 100), 100), generator=seeded(0))
    tokens_BT[:, ::10] = 998
    batch = mask_tokens(tokens_BT, masking, seeded(1), padding=998)
    special_BT = tokens_BT == 998
    selected_BT = batch.selected_BT
    rows = rates("ours", tokens_BT, batch, masking)
    events = {
        "special_selected": selected_BT & special_BT,
        "unselected_changed": (batch.inputs_BT != tokens_BT) & ~selected_BT,
        "labels_not_the_original": (batch.labels_BT != tokens_BT)[selected_BT],
        "special_drawn": (batch.inputs_BT == 998)[~special_BT],
        "padding_seen": batch.visible_BT & special_BT,
    }
    metrics = {
        "tokens": tokens_BT.numel(),
        **{name: int(happened.sum()) for name, happened in events.items()},
        "largest_sigma": max(abs(row["sigmas"]) for row in rows),
    }
    if "transformers" in libraries:
        inputs_BT, labels_BT = collated(tokens_BT, masking, seeded(1))
        metrics["same_selected"] = torch.equal(labels_BT, batch.labels_BT)
        apart_BT = (inputs_BT == masking.mask_token) != (batch.inputs_BT == masking.mask_token)
        metrics["masked_apart"] = int(apart_BT.sum())
        metrics["special_drawn_by_transformers"] = int((inputs_BT == 998)[~special_BT].sum())
        theirs = MaskedBatch(inputs_BT, labels_BT, batch.visible_BT)
        rows += rates("transformers", tokens_BT, theirs, masking)
    return metrics, columns(rows)
