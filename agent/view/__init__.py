"""Show a night to people: tables, lines, plots and JSON."""
