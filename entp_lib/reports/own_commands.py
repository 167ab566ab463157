"""The commands ``text`` and ``data``: both models on a file of one's own. Imports nothing that takes a second."""

import argparse
from pathlib import Path

from entp_lib import paths
from entp_lib.reports.command_line import add_run_options, check_limits
from entp_lib.reports.training import run_sweep
from entp_lib.validation import printable, require


def add_parser(commands) -> None:
    """Add ``text`` and ``data`` to the commands."""
    text = commands.add_parser(
        "text",
        help="train decoder and ENTP on a text file of your own",
        description="Train on a UTF-8 text or Parquet file, about its last tenth held out, and print the losses; by "
        "default within minutes. ENTP sends half as many tokens as the context is long through its layers for every "
        "trained position of a window, so that --prefixes decides what it costs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    text.add_argument("file")
    text.add_argument("--architecture", action="append", choices=("decoder", "entp"), help="one instead of both")
    text.add_argument("--tokenizer", default="characters", help="characters, bytes, bpe or gpt2")
    text.add_argument(
        "--vocabulary",
        type=int,
        default=0,
        metavar="N",
        help="tokens that bpe learns; 0 for characters: those of the text",
    )
    text.add_argument("--context", type=int, default=64, metavar="N", help="tokens in a window")
    text.add_argument("--prefixes", type=int, default=8, metavar="N", help="trained positions of a window; 0 for all")
    text.add_argument("--size", default="small", help="one of the paper's model sizes")
    text.add_argument("--steps", type=int, default=0, metavar="N", help="updates of the weights; 0: by the file's size")
    text.add_argument("--batch-size", type=int, default=32, metavar="N", help="windows in a step")
    text.add_argument("--max-lr", type=float, default=1e-3, metavar="RATE", help="learning rate; falls to a tenth")
    text.add_argument("--evaluations", type=int, default=20, metavar="N", help="points of the curves of losses")
    text.add_argument(
        "--published",
        action="store_true",
        help="all positions, steps, batch and rate of the authors' Shakespeare: days on two cores",
    )
    add_run_options(text, seeds=1)
    text.set_defaults(command=text_command)
    data = commands.add_parser(
        "data",
        help="train decoder and ENTP on sequences of your own, from a CSV or npz file",
        description="Train on the sequences of a file and print the test scores. A CSV file has a column 'sequence' "
        "(tokens separated by spaces), and may have 'wanted' (which tokens are to be predicted, as 5 or 5-8), "
        "'targets' (other answers at those positions) and 'part' (train, validation, test). An npz file has arrays "
        "'sequences' (P, T), 'wanted', 'targets' and 'part'; real sequences (P, T, d) need real targets.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    data.add_argument("file")
    data.add_argument("--architecture", action="append", default=[], help="only this one; may be repeated")
    data.add_argument("--shape", default="3/4/64", metavar="L/H/D", help="layers, heads and width")
    data.add_argument("--held-out", type=float, default=0.1, metavar="SHARE", help="for validation, and for test")
    data.add_argument("--steps", type=int, default=1000, metavar="N", help="updates of the weights")
    data.add_argument("--batch-size", type=int, default=64, metavar="N", help="sequences in a step")
    data.add_argument("--max-lr", type=float, default=1e-3, metavar="RATE", help="learning rate; falls to a tenth")
    add_run_options(data, seeds=3)
    data.set_defaults(command=data_command)


def text_command(options) -> int:
    """Train on the file, print losses and samples, and say where weights and curves are; 1 where runs failed."""
    from entp_lib.records.execution import device_for
    from entp_lib.records.store import Store
    from entp_lib.reports import own_text

    require(Path(options.file).exists(), f"{options.file}: no such file")
    check_limits(options)
    results = options.results or paths.results() / "own"
    Store(results).check_writable()
    configs = own_text.configs(
        str(Path(options.file).resolve()),
        options.architecture or ("decoder", "entp"),
        **own_text.settings(options),
    )
    device = device_for("paper")  # a GPU if there is one
    done = run_sweep(options, configs, own_text.VERSION, results, printable(Path(options.file).name), device=device)
    print(own_text.report(done.records, Store(results)))
    own_text.show(done.records, own_text.courses(done.records), Store(results))
    return 1 if done.failures else 0


def data_command(options) -> int:
    """Train both models on the file and print their test scores; 1 where runs failed."""
    from entp_lib.records.store import Store
    from entp_lib.reports import own_data

    check_limits(options)
    results = options.results or paths.results() / "own"
    Store(results).check_writable()
    names = "held_out steps batch_size max_lr seeds shape".split()
    configs = own_data.configs(options.file, options.architecture, **{n: getattr(options, n) for n in names})
    done = run_sweep(options, configs, own_data.VERSION, results, printable(Path(options.file).name))
    if done.complete or not done.failures:
        print(own_data.report(done.complete))
    if drawn := own_data.picture(done.complete, Store(results).root / "figures" / "data.png"):
        print(f"\npicture: {paths.relative(drawn)}")
    for record in done.complete:
        print(f"\n{record.config.model.architecture}, seed {record.config.model_seed}")
        if Store(results).weights_path(record.experiment, record.id).exists():
            print("\n".join(f"  {line}" for line in own_data.how_to_go_on(record, Store(results))))
        else:
            print("  its weights are gone: the same command with --fresh makes them again")
    return 1 if done.failures else 0
