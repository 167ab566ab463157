"""Pretrained models (Figures 3, 4 and 9, Table 5, appendix C.1): encoders as ENTP, LoRA, a
provider's fine-tuning.
"""
