"""Looped Transformers as programmable computers (Giannou et al. 2023): weights set by hand, run in a loop."""

# Of this folder, as "module:attribute", by the name that records carry.
EXPERIMENTS = {
    "looped": "experiment:LOOPED",
}

# Functions of JSON arguments that return (metrics, curves).
STUDIES = {
    "looped_random_programs": "studies.subleq:random_programs_study",
    "looped_library": "studies.subleq:library_study",
    "looped_circuits": "studies.subleq:circuits_study",
    "looped_copying": "studies.subleq:copying_study",
    "looped_drift": "studies.subleq:drift_study",
    "looped_temperature": "studies.subleq:temperature_study",
    "looped_off_target": "studies.subleq:off_target_study",
    "looped_masks": "studies.subleq:masks_study",
    "looped_restricted": "studies.subleq:restricted_study",
    "looped_product": "studies.blocks:product_study",
    "looped_sigmoids": "studies.blocks:sigmoids_study",
    "looped_transpose": "studies.blocks:transpose_study",
    "looped_contract": "studies.blocks:contract_study",
    "looped_depth": "studies.blocks:depth_study",
    "looped_fleq": "studies.fleq:fleq_study",
    "looped_calculator": "studies.fleq:calculator_study",
    "looped_newton": "studies.fleq:newton_study",
    "looped_power": "studies.fleq:power_study",
    "looped_regression": "studies.fleq:regression_study",
    "looped_back_propagation": "studies.fleq:back_propagation_study",
    "looped_least_squares": "studies.fleq:least_squares_study",
    "looped_sizes": "studies.errata:sizes_study",
    "looped_errata": "studies.errata:errata_study",
    "looped_multiply": "studies.errata:multiply_study",
    "looped_speed": "studies.errata:speed_study",
}
