"""What notebook 11 shows, each as a function of JSON arguments that returns (metrics, curves)."""

from entp_lib.papers.looped.studies import blocks, computing, exact, learning, shown, softmax

STUDIES = {
    "looped_random_programs": exact.random_programs_study,
    "looped_library": exact.library_study,
    "looped_circuits": exact.circuits_study,
    "looped_copying": exact.copying_study,
    "looped_drift": exact.drift_study,
    "looped_temperature": softmax.temperature_study,
    "looped_off_target": softmax.off_target_study,
    "looped_masks": softmax.masks_study,
    "looped_restricted": softmax.restricted_study,
    "looped_product": blocks.product_study,
    "looped_sigmoids": blocks.sigmoids_study,
    "looped_transpose": blocks.transpose_study,
    "looped_contract": blocks.contract_study,
    "looped_depth": blocks.depth_study,
    "looped_fleq": computing.fleq_study,
    "looped_calculator": computing.calculator_study,
    "looped_newton": computing.newton_study,
    "looped_power": computing.power_study,
    "looped_regression": learning.regression_study,
    "looped_back_propagation": learning.back_propagation_study,
    "looped_least_squares": learning.least_squares_study,
    "looped_sizes": shown.sizes_study,
    "looped_errata": shown.errata_study,
    "looped_multiply": shown.multiply_study,
    "looped_speed": shown.speed_study,
}

__all__ = ["STUDIES"]
