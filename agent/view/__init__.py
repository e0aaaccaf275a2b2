"""How a night is shown to people."""
