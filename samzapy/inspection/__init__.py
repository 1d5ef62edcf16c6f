"""The read side: status, metrics, explanations and checks of a coordinator stream. Decides nothing."""
