"""Draw the facts of a night as Vega-Lite charts: pure functions of the facts, and one place that renders them."""
