"""Reading of text against training, to see that it never waits: ``python -m benchmarks.loader``.

    python -m benchmarks.loader                   # the quick tier's decoder, half a minute on one core
    python -m benchmarks.loader --quick           # a few seconds
    python -m benchmarks.loader --tier gpu --device cuda   # the GPU tier's decoder, windows on the GPU

A ratio says how many times as many tokens a second the loader gives as the decoder trains on, the two measured in
turn; the project wants 20. The loader draws batches as training does, several steps at a time, from mapped files.
"""

import functools

import pandas as pd
import torch

from benchmarks import in_turn, parser_of, show
from benchmarks.engine import seconds
from entp_lab.configs import RunConfig
from entp_lab.provenance import device_name
from entp_lib.model import build_model
from entp_lib.tasks import Text, generator_for
from entp_lib.training import STEPS_PER_DRAW, TrainingState, make_optimizer, update
from entp_papers.entp.language.experiment import OPENWEBTEXT

GOAL = 20


def compare(config: RunConfig, device: str, repeat: int) -> dict:
    """Tokens a second of the loader over those of training steps, in turn, ``STEPS_PER_DRAW`` steps at a time."""
    task, size = Text(**config.task_params), config.train.batch_size
    task.facts()
    model = build_model(config.model, device=device).train()
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    state = TrainingState(model, make_optimizer(model, config.train), config.train, loss_sum)
    generator = generator_for(device, "loader")
    batch = task.batch(generator, size)

    def load() -> None:
        task.batch(generator, size * STEPS_PER_DRAW)

    def steps() -> None:
        for _ in range(STEPS_PER_DRAW):
            update(state, task, batch)

    load(), steps()  # warm both up
    found = in_turn(load, steps, repeat, functools.partial(seconds, device=device))
    rate = size * STEPS_PER_DRAW * task.context / found.pop("seconds")
    case = f"{config.tier}, batch {size} of {task.context} tokens"
    return {"case": case, "loader_tokens_per_second": rate, **found, "goal": GOAL}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--tier", choices=["smoke", "quick", "gpu", "paper"], default="quick")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as a run has it
    config = OPENWEBTEXT.configs(options.tier, 1)[0]
    row = compare(config, options.device, 1 if options.quick else 9)
    print(f"{device_name(options.device)}, one thread, torch {torch.__version__}")
    show(pd.DataFrame([row]), 1, options.json)


if __name__ == "__main__":
    main()
