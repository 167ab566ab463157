"""Looped Transformers as programmable computers (Giannou et al. 2023): weights set by hand, run in a loop."""

# Of this folder, as "module:attribute", by the name that records carry.
EXPERIMENTS = {
    "looped": "experiment:LOOPED",
}

# Functions of JSON arguments that return (metrics, curves).
STUDIES = {
    "looped_random_programs": "studies.exact:random_programs_study",
    "looped_library": "studies.exact:library_study",
    "looped_circuits": "studies.exact:circuits_study",
    "looped_copying": "studies.exact:copying_study",
    "looped_drift": "studies.exact:drift_study",
    "looped_temperature": "studies.attention:temperature_study",
    "looped_off_target": "studies.attention:off_target_study",
    "looped_masks": "studies.attention:masks_study",
    "looped_restricted": "studies.exact:restricted_study",
    "looped_product": "studies.blocks:product_study",
    "looped_sigmoids": "studies.blocks:sigmoids_study",
    "looped_transpose": "studies.blocks:transpose_study",
    "looped_contract": "studies.blocks:contract_study",
    "looped_depth": "studies.blocks:depth_study",
    "looped_fleq": "studies.algorithms:fleq_study",
    "looped_calculator": "studies.algorithms:calculator_study",
    "looped_newton": "studies.algorithms:newton_study",
    "looped_power": "studies.algorithms:power_study",
    "looped_regression": "studies.algorithms:regression_study",
    "looped_back_propagation": "studies.algorithms:back_propagation_study",
    "looped_least_squares": "studies.algorithms:least_squares_study",
    "looped_sizes": "studies.errata:sizes_study",
    "looped_errata": "studies.errata:errata_study",
    "looped_multiply": "studies.attention:multiply_study",
    "looped_speed": "studies.attention:speed_study",
}
