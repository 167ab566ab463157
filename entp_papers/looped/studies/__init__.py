"""What notebook 11 shows, each as a function of JSON arguments that returns (metrics, curves); named in ``runs``."""
