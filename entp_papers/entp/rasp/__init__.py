"""Programs and constructed weights for Count3, and what a decoder would need (§6.1 to §6.3,
appendices E and F).
"""
