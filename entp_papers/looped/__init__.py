"""Looped Transformers as programmable computers (Giannou et al. 2023): weights set by hand."""

# Experiments by the name that records carry; values are "module:attribute", from this folder.
EXPERIMENTS = {
    "looped": "experiment:LOOPED",
}

# Study functions by name: they take JSON arguments and return (metrics, curves).
STUDIES = {
    "looped_random_programs": "subleq_studies:random_programs_study",
    "looped_library": "subleq_studies:library_study",
    "looped_circuits": "subleq_studies:circuits_study",
    "looped_copying": "subleq_studies:copying_study",
    "looped_drift": "subleq_studies:drift_study",
    "looped_temperature": "subleq_studies:temperature_study",
    "looped_off_target": "subleq_studies:off_target_study",
    "looped_masks": "subleq_studies:masks_study",
    "looped_restricted": "subleq_studies:restricted_study",
    "looped_product": "block_studies:product_study",
    "looped_sigmoids": "block_studies:sigmoids_study",
    "looped_transpose": "block_studies:transpose_study",
    "looped_contract": "block_studies:contract_study",
    "looped_depth": "block_studies:depth_study",
    "looped_fleq": "fleq_studies:fleq_study",
    "looped_calculator": "fleq_studies:calculator_study",
    "looped_newton": "fleq_studies:newton_study",
    "looped_power": "fleq_studies:power_study",
    "looped_regression": "fleq_studies:regression_study",
    "looped_back_propagation": "fleq_studies:back_propagation_study",
    "looped_least_squares": "fleq_studies:least_squares_study",
    "looped_sizes": "errata:sizes_study",
    "looped_errata": "errata:errata_study",
    "looped_multiply": "errata:multiply_study",
    "looped_speed": "subleq_studies:speed_study",
    "looped_one_head": "one_head_studies:one_head_study",
    "looped_one_head_sums": "one_head_studies:one_head_sums_study",
    "looped_ranges": "one_head_studies:ranges_study",
}
