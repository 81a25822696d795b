"""Random feature maps, and heads behind them: wide and fixed, read linearly, so not linear."""
