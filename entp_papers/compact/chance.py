"""What guessing alone recalls of a library of random sequences (§2.1.3, equations 6 to 8)."""

from entp_lib.validation import require


def chance_offset(library: int, symbols: int) -> float:
    """Expected number of sequences whose last token is guessed right, K/T (equation 8)."""
    check(library, symbols)
    return library / symbols


def chance_below(library: int, symbols: int, right: int) -> float:
    """P(r < ``right``) of the binomial number r of right guesses (equation 7).

    The paper prints 0.96 for K = 2048, T = 128, R = 25; that is the value for R = 24, and R = 25 gives 0.978.
    """
    from scipy import stats  # takes a second to import

    check(library, symbols)
    return float(stats.binom.cdf(right - 1, library, 1 / symbols))


def chance_from(library: int, symbols: int, right: int) -> float:
    """1 - P(r < ``right``), computed as an upper tail so that small values keep their digits."""
    from scipy import stats

    check(library, symbols)
    return float(stats.binom.sf(right - 1, library, 1 / symbols))


def check(library: int, symbols: int) -> None:
    """Raise ConfigError where there is nothing to guess."""
    require(library >= 1, f"library = {library}: must hold at least 1 sequence")
    require(symbols >= 2, f"symbols = {symbols}: must be at least 2")
